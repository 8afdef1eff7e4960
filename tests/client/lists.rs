//! A list over HTTP is complete, or ends in an error that names the cause; over HTTP/1.1 and HTTP/2.

use std::sync::mpsc;

use futures::FutureExt;
use k8s_pb::api::core::v1::Pod;
use listwatch::client::{
    Client, Compression, Error, ErrorKind, ListParams, ListSummary, Request, Resource, ResponseFuture, Retry,
    Selection, Transport, WatchParams,
};
use listwatch::internal::RetryAdvice;
use listwatch::{DecodeErrorKind, ItemError, Json, Limits};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server, Synthesizer, TOKEN, leak, recorded_pods};

use crate::support::fixture;
use crate::support::server::{
    anonymous, client, paged, pods, pods_with, quick, recorded, serve, serve_by, serve_in_turn,
};

/// Lists the pods of this server over HTTP/1.1 and then over HTTP/2.
async fn both(server: &Server) -> [Result<(Vec<Box<[u8]>>, ListSummary), Error>; 2] {
    let [first, second] = [false, true].map(|http2| pods(&client(server, http2)).into_vec());
    [first.await, second.await]
}

fn status(code: u16, file: &str) -> Answer {
    recorded(file).status(code)
}

#[tokio::test]
async fn a_list_arrives_whole() {
    let body = Synthesizer::new(&recorded_pods(), 300).unwrap();
    let bytes = body.len();
    for (name, body) in [
        ("plain", Body::synthesize(body.clone())),
        ("with a length", Body::synthesize(body.clone()).with_content_length()),
        ("in small pieces", Body::synthesize(body.clone()).chunk_size(37)),
        ("in large pieces", Body::synthesize(body.clone()).chunk_size(1 << 20)),
        ("gzip", Body::synthesize(body.clone()).gzip()),
        ("gzip in members", Body::synthesize(body.clone()).gzip_members()),
    ] {
        let answer = Answer::ok(body).header("audit-id", "a1").header("warning", &format!("299 - \"old {TOKEN}\""));
        let server = serve(answer).await;
        for result in both(&server).await {
            let (items, summary) = result.unwrap();
            assert_eq!((items.len(), summary.items, summary.bytes), (300, 300, bytes), "{name}");
            assert_eq!((summary.pages, summary.attempts, summary.restarts), (1, 1, 0));
            assert_eq!(summary.type_meta.kind, "PodList");
            assert!(summary.consistent && !summary.list_meta.resource_version.is_empty());
            assert_eq!(summary.audit_id.as_deref(), Some("a1"));
            assert_eq!(summary.warnings, ["old [redacted]"]);
            assert!(summary.time_to_first_item.unwrap() <= summary.elapsed);
            let wire = if name.starts_with("gzip") { 1..bytes / 2 } else { bytes..bytes + 1 };
            assert!(wire.contains(&summary.wire_bytes), "{name}: {}", summary.wire_bytes);
        }
        let versions: Vec<_> = server.requests().iter().map(|request| format!("{:?}", request.version)).collect();
        assert_eq!(versions, ["HTTP/1.1", "HTTP/2.0"]);
    }
}

/// A transport that no request reaches.
struct Unreachable;

impl Transport for Unreachable {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        panic!("{request:?}")
    }
}

#[tokio::test]
async fn a_type_of_another_kind_is_an_error_before_any_request() {
    let client = Client::new(Unreachable);
    let list = client.list::<Pod>(&Resource::CONFIG_MAPS, &ListParams::default()).into_vec().await.unwrap_err();
    let watched = client.watch::<Pod>(&Resource::CONFIG_MAPS, &WatchParams::from_now()).next().await.unwrap();
    let opened = client.watch::<Pod>(&Resource::CONFIG_MAPS, &WatchParams::from_now()).open().await.map(drop);
    let got = client.get::<Pod>(&Resource::CONFIG_MAPS, Some("a"), "b").await;
    for error in [list, watched.unwrap_err(), opened.unwrap_err(), got.unwrap_err()] {
        let expected = "unexpected kind: the object is a ConfigMap of v1, the type reads a Pod of v1";
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn reads_one_byte_at_a_time() {
    let server = serve(Answer::ok(Body::replay(fixture("configmaps.pb")).chunk_size(1))).await;
    for http2 in [false, true] {
        let list = client(&server, http2).list::<[u8]>(&Resource::CONFIG_MAPS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap().0.len(), 13);
    }
}

#[tokio::test]
async fn sends_path_query_credentials_and_encodings() {
    let server = serve(recorded("pods-empty.pb")).await;
    for http2 in [false, true] {
        let client = client(&server, http2);
        let options = ListParams::new(Selection::all().labels("app=web".parse().unwrap())).page_size(5);
        let (items, _) = client.list::<[u8]>(&Resource::PODS, &options).namespace("team-1").into_vec().await.unwrap();
        assert!(items.is_empty());
        // Behind a proxy with a path prefix, compressed.
        let prefixed = anonymous(&format!("{}/k8s/clusters/c1/", server.url()), http2);
        let prefixed = Client::new(prefixed.open()).compression(Compression::Gzip);
        pods(&prefixed).into_vec().await.unwrap();
    }
    for requests in server.requests().chunks(2) {
        let header =
            |n: usize, name: &str| requests[n].headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(requests[0].path, "/api/v1/namespaces/team-1/pods?labelSelector=app%3Dweb&limit=5");
        assert_eq!(header(0, "authorization"), Some(format!("Bearer {TOKEN}")));
        assert_eq!(header(0, "accept").as_deref(), Some("application/vnd.kubernetes.protobuf,application/json"));
        // Loopback needs no compression.
        assert_eq!(header(0, "accept-encoding").as_deref(), Some("identity"));
        assert_eq!(requests[1].path, "/k8s/clusters/c1/api/v1/pods");
        assert_eq!((header(1, "authorization"), header(1, "accept-encoding").as_deref()), (None, Some("gzip")));
    }
}

/// A body that ends too early is never a shorter list, and is not requested again once an item was delivered.
#[tokio::test]
async fn an_interrupted_body_is_incomplete_and_not_retried() {
    let body = Synthesizer::new(&recorded_pods(), 500).unwrap();
    let (bytes, half) = (body.len(), body.len() / 2);
    for (name, body) in [
        ("truncated", Body::synthesize(body.clone()).cut_at(half)),
        ("reset", Body::synthesize(body.clone()).reset_at(half)),
        ("reset in place of the end", Body::synthesize(body.clone()).reset_at(bytes)),
        ("truncated below its length", Body::synthesize(body.clone()).with_content_length().cut_at(half)),
        ("truncated gzip", Body::synthesize(body.clone()).gzip().cut_at(30_000)),
        ("reset gzip", Body::synthesize(body.clone()).gzip().reset_at(30_000)),
        ("truncated gzip members", Body::synthesize(body.clone()).gzip_members().cut_at(30_000)),
    ] {
        let server = serve(Answer::ok(body)).await;
        for http2 in [false, true] {
            let mut items = pods(&client(&server, http2));
            let mut delivered = 0;
            let error = loop {
                match items.next().await.expect("the list ends in an error") {
                    Ok(_) => delivered += 1,
                    Err(error) => break error,
                }
            };
            assert!(error.is_incomplete() && error.is_retryable(), "{name}: {error}");
            assert_eq!(error.items(), delivered, "{name}");
            assert!(delivered > 0, "{name}");
            assert!(error.to_string().starts_with("incomplete: the body ended before the list did"), "{error}");
            assert!(items.next().await.is_none() && items.summary().is_none());
        }
        assert_eq!(server.requests().len(), 2, "{name}: retried");
    }
}

const JSON_STATUS: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;

/// Custom resources have no protobuf; other resources are in JSON if requested.
#[tokio::test]
async fn lists_custom_resources_in_json() {
    #[derive(serde::Deserialize)]
    struct Widget {
        spec: serde_json::Value,
    }

    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    let server = serve_by(|request: &RecordedRequest, _| {
        let is_one = request.path.contains("/widgets/");
        let body = match fixture("widgets-negotiated.json") {
            list if !is_one => list,
            list => serde_json::from_slice::<serde_json::Value>(&list).unwrap()["items"][0].to_string().into_bytes(),
        };
        // The content type is wrong.
        Answer::ok(
            Body::replay(if request.path.ends_with("/pods") { fixture("pods.json") } else { body }).chunk_size(100),
        )
    });
    let server = server.await;
    for http2 in [false, true] {
        let client = client(&server, http2);
        let options = ListParams::default();
        let (bytes, summary) = client.list::<[u8]>(&widgets, &options).into_vec().await.unwrap();
        assert_eq!((summary.items, &*summary.type_meta.kind), (bytes.len() as u64, "WidgetList"));
        assert!(!bytes.is_empty() && !summary.list_meta.resource_version.is_empty());
        let (decoded, _) = client.list::<Json<Widget>>(&widgets, &options).into_vec().await.unwrap();
        assert_eq!(decoded.len(), bytes.len());
        for (widget, bytes) in decoded.iter().zip(&bytes) {
            assert_eq!(widget.spec, serde_json::from_slice::<serde_json::Value>(bytes).unwrap()["spec"]);
        }
        let one = client.get::<Json<Widget>>(&widgets, Some("a"), "b").await.unwrap();
        assert_eq!(one.spec, decoded[0].spec);
        let json = ListParams::new(Selection::all().json());
        let names = client.list_with(&Resource::PODS, &json, |pod| pod.meta().map(|meta| meta.name().into_owned()));
        assert_eq!(names.single_page(None).into_vec().await.unwrap().0.len(), 30);
        // A protobuf type is not decoded from JSON.
        let error = client.list::<Pod>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
        let error = crate::support::chain(&error);
        assert!(
            error.starts_with("cannot read item 0, ") && error.contains("is in JSON, expected protobuf"),
            "{error}"
        );
    }
    let accepted = server.requests().into_iter().map(|request| request.headers["accept"].to_str().unwrap().to_owned());
    let (both, json) = ("application/vnd.kubernetes.protobuf,application/json", "application/json");
    assert_eq!(accepted.collect::<Vec<_>>(), [[both, json, json, json, both]; 2].concat());
}

#[tokio::test]
async fn a_body_that_is_not_the_list_is_an_error() {
    let pods = || Body::replay(recorded_pods());
    // The checksum is in the last eight bytes.
    let gzip = fixture("pods-gzip.pb.gz");
    let checksum = gzip.len() as u64 - 8;
    let bad_gzip = Answer::ok(Body::replay(gzip).flip_at(checksum)).header("content-encoding", "gzip");
    let brotli = Answer::ok(pods()).header("content-encoding", "br");
    let html = format!("<html>\n<h1>Sign in</h1> Bearer abc {TOKEN}</html>");
    for (name, answer, expected) in [
        (
            "HTML",
            Answer::ok(Body::replay(html)).content_type("text/html"),
            "unexpected encoding: the body looks like HTML, not like an API server's (content type text/html): \
             <html> <h1>Sign in</h1> Bearer [redacted] [redacted]</html>",
        ),
        (
            "CBOR",
            Answer::ok(Body::replay(fixture("configmaps.cbor"))).content_type("application/cbor"),
            "unexpected encoding: the body looks like CBOR, not like an API server's (content type application/cbor)",
        ),
        (
            "a table",
            status(200, "pods-table.json"),
            "not a list: the body has the kind \"Table\" of \"meta.k8s.io/v1\"",
        ),
        ("a JSON Status", Answer::ok(Body::replay(JSON_STATUS)), "API error: 403 Forbidden: no"),
        ("JSON of another kind", status(200, "widgets-negotiated.json"), "the server sent "),
        ("truncated JSON", Answer::ok(Body::replay(fixture("pods.json")).cut_at(100_000)), "incomplete: "),
        ("malformed JSON", Answer::ok(Body::replay("{]")), "malformed: "),
        ("a Status", status(200, "error-403.pb"), "API error: 403 Forbidden: "),
        ("another kind", status(200, "nodes.pb"), "the server sent NodeList of \"v1\" instead of PodList of \"v1\""),
        ("an object", status(200, "single-configmap.pb"), "not a list: the body has the kind \"ConfigMap\" of \"v1\""),
        ("bad gzip", bad_gzip, "cannot decompress the response: gzip: "),
        ("brotli", brotli, "cannot decompress the response: the content coding is br, not gzip or identity"),
        ("an appended Status", Answer::ok(pods().append(fixture("error-410-exact.pb"))), "API error: 410 Expired: "),
        ("malformed", Answer::ok(pods().flip_at(4)), "malformed: "),
    ] {
        let server = serve(answer).await;
        for result in both(&server).await {
            let error = result.expect_err(name);
            assert!(error.to_string().starts_with(expected), "{name}: {error}");
            assert_eq!(error.is_retryable(), error.is_incomplete(), "{name}");
            assert_eq!(leak(format!("{error:?}").as_bytes()), None, "{name}");
        }
        assert_eq!(server.requests().len(), 2, "{name}");
    }
}

/// Every answer that is not 2xx is a typed error, whatever its body.
#[tokio::test]
async fn every_error_status_is_a_typed_error() {
    let json = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"slow TOKEN","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}],"retryAfterSeconds":7},"code":504}"#;
    let json = json.replace("TOKEN", TOKEN);
    let text = |code, body: &'static str| {
        Answer::ok(Body::replay(body.replace("TOKEN", TOKEN))).content_type("text/plain").status(code)
    };
    for (name, answer, code, expected, retry_after) in [
        ("401", status(401, "error-401.pb"), 401, "API error: 401 Unauthorized: Unauthorized", None),
        ("403", status(403, "error-403.pb"), 403, "API error: 403 Forbidden: ", None),
        ("404", status(404, "error-404-no-such-resource.body"), 404, "API error: 404", None),
        ("406", status(406, "error-406-custom-resource.pb"), 406, "API error: 406 NotAcceptable: ", None),
        ("410", status(410, "error-410-continue.pb"), 410, "API error: 410 Expired: ", None),
        (
            "too large version",
            status(504, "error-504-version-too-large.pb"),
            504,
            "API error: 504 Timeout: Timeout: Too large resource version",
            Some(1),
        ),
        (
            "JSON without content type",
            Answer::ok(Body::replay(json.clone())).no_content_type().status(504),
            504,
            "API error: 504 Timeout: slow [redacted] [ResourceVersionTooLarge], retry after 7 s",
            Some(7),
        ),
        (
            "fairness",
            text(429, "Too many\nrequests").header("retry-after", "3"),
            429,
            "API error: 429: Too many requests",
            Some(3),
        ),
        (
            "header first",
            Answer::ok(Body::replay(json)).status(504).header("retry-after", "9"),
            504,
            "API error: 504",
            Some(9),
        ),
        ("500 as text", text(500, "oops"), 500, "API error: 500: oops", None),
        ("500 as nothing", text(500, ""), 500, "API error: 500", None),
        ("502 as HTML", text(502, "<h1>Bad TOKEN</h1>"), 502, "API error: 502: <h1>Bad [redacted]</h1>", None),
        ("garbage", status(400, "pods-gzip.pb.gz"), 400, "API error: 400", None),
        (
            "truncated Status",
            Answer::ok(Body::replay(fixture("error-403.pb")[..40].to_vec())).status(403),
            403,
            "API error: 403",
            None,
        ),
        ("reset error", Answer::ok(Body::replay("half").reset_at(2)).status(400), 400, "API error: 400: ha", None),
        ("gzipped error", Answer::ok(Body::replay("whole").gzip()).status(400), 400, "API error: 400: whole", None),
    ] {
        let server = serve(answer.header("audit-id", "id7")).await;
        for http2 in [false, true] {
            let client = client(&server, http2).retry(Retry::never());
            let error = pods(&client).into_vec().await.expect_err(name);
            assert_eq!((error.code(), error.items()), (Some(code), 0), "{name}: {error}");
            assert!(error.to_string().starts_with(expected), "{name}: {error}");
            assert!(error.to_string().ends_with(" (audit id id7)"), "{name}: {error}");
            assert_eq!(error.retry_after().map(|time| time.as_secs()), retry_after, "{name}");
            assert_eq!(leak(format!("{error:?}").as_bytes()), None, "{name}");
            assert_eq!(error.is_too_large_version(), code == 504 && !name.starts_with("500"), "{name}");
            assert_eq!(error.is_retryable(), matches!(code, 429 | 500..=599), "{name}");
            assert_eq!(error.is_expired(), code == 410);
        }
        // After a 406 the client requests JSON.
        assert_eq!(server.requests().len(), if code == 406 { 4 } else { 2 }, "{name}");
    }
}

/// Counts the requests when the error lasts, and when it passes.
#[tokio::test]
async fn retries_transient_errors_before_the_first_item() {
    let plain = |code| Answer::ok(Body::replay("")).status(code);
    let list = || Answer::ok(Body::replay(recorded_pods()));
    let after = |code| plain(code).header("retry-after", "0");
    for (name, answer, again) in [
        ("408", plain(408), true),
        ("429", plain(429), true),
        ("500", plain(500), true),
        ("502", plain(502), true),
        ("503", plain(503), true),
        ("504", plain(504), true),
        ("500 with Retry-After", after(500), true),
        ("502 with Retry-After", after(502), true),
        ("403 with Retry-After", after(403), false),
        ("404", plain(404), false),
        ("410", plain(410), false),
        ("401 with a fixed token", plain(401), false),
        ("reset before the first byte", Answer::ok(Body::replay(recorded_pods()).reset_at(0)), true),
        ("reset before the first item", Answer::ok(Body::replay(recorded_pods()).reset_at(20)), true),
        ("truncated before the first item", Answer::ok(Body::replay(recorded_pods()).cut_at(20)), true),
        ("an empty body", Answer::ok(Body::replay("")), true),
        ("reset after the first item", Answer::ok(Body::replay(recorded_pods()).reset_at(50_000)), false),
        ("Retry-After over 30 s", plain(429).header("retry-after", "31"), false),
    ] {
        for http2 in [false, true] {
            // The error lasts.
            for tries in [1, 2, 5] {
                let server = serve(answer.clone()).await;
                let client = client(&server, http2).retry(quick().tries(tries));
                pods(&client).into_vec().await.expect_err(name);
                let expected = if again { tries as usize } else { 1 };
                assert_eq!(server.requests().len(), expected, "{name}");
            }
            // The error passes.
            let server = serve_in_turn([answer.clone(), list()]).await;
            let result = pods(&client(&server, http2)).into_vec().await;
            assert_eq!(result.is_ok(), again, "{name}");
            if let Ok((items, summary)) = result {
                assert_eq!((items.len(), summary.attempts, summary.pages), (120, 2, 1), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn limits_count_after_decompression_and_over_pages() {
    // A gzip bomb: a megabyte of zeros in an item is a kilobyte on the wire.
    let body = Synthesizer::new(&recorded_pods(), 5000).unwrap();
    let server = serve(Answer::ok(Body::synthesize(body).gzip())).await;
    for http2 in [false, true] {
        let list = pods(&client(&server, http2)).limits(Limits::default().bytes(1 << 20));
        let error = list.into_vec().await.unwrap_err();
        let ErrorKind::Decode(decode) = error.kind() else { panic!("{error}") };
        assert!(matches!(decode.kind(), DecodeErrorKind::Limit { max: 0x10_0000, .. }), "{error}");
    }
    for http2 in [false, true] {
        let pages = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"].map(|page| status(200, page));
        let server = serve_in_turn(pages).await;
        let list = paged(&client(&server, http2)).limits(Limits::default().items(70));
        let error = list.into_vec().await.unwrap_err();
        let ErrorKind::Decode(decode) = error.kind() else { panic!("{error}") };
        assert!(matches!(decode.kind(), DecodeErrorKind::Limit { size: 71, max: 70, .. }), "{error}");
        assert_eq!((error.limit(), error.items()), (Some(listwatch::Limit::Items), 70));
    }
}

#[tokio::test]
async fn an_item_that_fails_ends_the_list_or_is_skipped() {
    let server = serve(Answer::ok(Body::replay(recorded_pods()))).await;
    for http2 in [false, true] {
        let odd = |n: &mut u32| {
            *n += 1;
            if *n % 2 == 1 { Ok(*n) } else { Err(listwatch::ItemError::other("even")) }
        };
        let list = |mut n: u32| pods_with(&client(&server, http2), move |_| odd(&mut n));
        let (report, reported) = mpsc::channel();
        let skipping = list(0)
            .skip_item_errors(true)
            .limits(Limits::default().item_size(8600))
            .on_skip(move |error| report.send((error.index(), error.limit().is_some())).unwrap());
        let (items, summary) = skipping.into_vec().await.unwrap();
        let reported: Vec<_> = reported.try_iter().collect();
        assert_eq!((summary.items + summary.skipped, summary.skipped), (120, reported.len() as u64));
        let oversized = reported.iter().filter(|(_, is_oversized)| *is_oversized).count();
        assert!(oversized > 10 && items.len() == (120 - oversized).div_ceil(2), "{oversized}, {}", items.len());
        assert!(reported.is_sorted() && reported.iter().all(|(index, _)| index.is_some()));
        let error = list(0).into_vec().await.unwrap_err();
        let text = crate::support::chain(&error);
        assert!(text.starts_with("cannot read item 1, at byte ") && text.ends_with(": even"), "{text}");
        assert_eq!(error.items(), 1);
        // After a skipped item the request is not retried.
        let broken = serve(Answer::ok(Body::replay(recorded_pods()).reset_at(30_000))).await;
        let none = pods_with(&client(&broken, http2), |_| Err::<(), _>(listwatch::ItemError::other("no")));
        none.skip_item_errors(true).into_vec().await.unwrap_err();
        assert_eq!(broken.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_dropped_list_and_client_leave_no_connection() {
    let server = serve(Answer::ok(Body::synthesize(Synthesizer::new(&recorded_pods(), 200_000).unwrap()))).await;
    for http2 in [false, true] {
        let client = client(&server, http2);
        // One list is dropped after its first item, another before it.
        let mut items = pods(&client);
        items.next().await.unwrap().unwrap();
        drop(items);
        let mut items = pods(&client);
        assert!(items.next().now_or_never().is_none());
        drop((items, client));
        server.no_connections().await;
    }
}

#[tokio::test]
async fn a_panic_in_the_callback_poisons_the_list() {
    use std::panic::AssertUnwindSafe;

    let server = serve(Answer::ok(Body::replay(recorded_pods()))).await;
    for http2 in [false, true] {
        let client = client(&server, http2);
        let mut items = pods_with(&client, |_| -> Result<(), listwatch::ItemError> { panic!("map") });
        assert!(AssertUnwindSafe(items.next()).catch_unwind().await.is_err());
        let error = items.next().await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("poisoned: "), "{error}");
        assert!(items.next().await.is_none() && items.summary().is_none());
    }
    assert_eq!(server.requests().len(), 2);
}

/// A custom resource may name the kind of its lists as it likes; its items show that the list is of the resource.
#[tokio::test]
async fn lists_a_custom_resource_whose_lists_have_a_kind_of_their_own() {
    let item = |kind: &str| format!(r#"{{"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"name":"f"}}}}"#);
    let list =
        |items: &str, head: &str| format!(r#"{{{head},"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
    let sorted = |kind: &str, items: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","items":[{items}],"kind":"{kind}","metadata":{{"resourceVersion":"7"}}}}"#
        )
    };
    let head = |api_version: &str, kind: &str| format!(r#""apiVersion":"{api_version}","kind":"{kind}""#);
    let foo = item("Foo");
    let other = "instead of FooList of \"example.com/v1\"";
    for (case, body, expected) in [
        ("as usual", list(&foo, &head("example.com/v1", "FooList")), Ok(1)),
        ("its own kind", list(&foo, &head("example.com/v1", "FooCollection")), Ok(1)),
        ("its own kind, without items", list("", &head("example.com/v1", "FooCollection")), Ok(0)),
        ("its own kind after the items", sorted("FooCollection", &format!("{foo},{foo}")), Ok(2)),
        ("another version", list(&foo, &head("example.com/v2", "FooCollection")), Err(other)),
        ("items of another kind", list(&item("Bar"), &head("example.com/v1", "BarList")), Err(other)),
        ("items of another kind first", sorted("BarList", &item("Bar")), Err(other)),
        ("an object", foo.clone(), Err(other)),
        ("a Table", r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#.to_owned(), Err("not a list: ")),
        ("no items", format!("{{{}}}", head("example.com/v1", "FooCollection")), Err("not a list: ")),
    ] {
        let server = serve(Answer::ok(Body::replay(body))).await;
        let foos = Resource::new("example.com", "v1", "foos", "Foo");
        let listed = client(&server, false).list::<[u8]>(&foos, &ListParams::default()).into_vec().await;
        match (listed, expected) {
            (Ok((items, summary)), Ok(count)) => {
                assert_eq!((items.len(), &*summary.list_meta.resource_version), (count, "7"), "{case}");
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{case}: {error}"),
            (listed, _) => panic!("{case}: {:?}", listed.map(|(items, _)| items.len())),
        }
    }
}

/// The error of a closure would return for the same item. A damaged body may be whole in the next response.
#[tokio::test]
async fn an_error_of_the_caller_is_not_retried_as_a_damaged_body_is() {
    let body = fixture("configmaps.pb");
    let mut damaged = body.clone();
    // The wire type of the tag of `raw`.
    damaged[25] ^= 7;
    let server = serve_in_turn([Answer::ok(Body::replay(body)), Answer::ok(Body::replay(damaged))]).await;
    let client = client(&server, false);
    let refused = client.list_with(&Resource::CONFIG_MAPS, &ListParams::default(), |_| {
        Err::<(), _>(ItemError::other("refused by the test"))
    });
    for (error, advice) in [
        (refused.into_vec().await.unwrap_err(), RetryAdvice::GiveUp),
        (pods(&client).into_vec().await.unwrap_err(), RetryAdvice::Relist),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Decode(_)), "{error}");
        assert_eq!(client.classify(&error), advice, "{error}");
    }
}
