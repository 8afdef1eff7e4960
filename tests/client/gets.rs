//! Gets with their settings, counts, and the defaults of the client.

use std::time::Duration;

use k8s_pb::apimachinery::pkg::apis::meta::v1::PartialObjectMetadata;
use listwatch::client::{Client, ErrorKind, ListParams, Resource, Retry, Selection, TransportErrorKind, WatchParams};
use listwatch::{Limit, Limits};

use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, config_maps, len_field};

const SECOND: Duration = Duration::from_secs(1);

fn config_map() -> Vec<u8> {
    body_of("v1", "ConfigMap", &config_maps::config_map("a", 5))
}

fn metadata() -> Vec<u8> {
    body_of("meta.k8s.io/v1", "PartialObjectMetadata", &config_maps::config_map("a", 5))
}

fn is_deadline(error: &listwatch::client::Error) -> bool {
    matches!(error.kind(), ErrorKind::Transport(error) if error.kind() == TransportErrorKind::Deadline)
}

#[tokio::test(start_paused = true)]
async fn a_get_requests_the_form_and_the_version() {
    let server = Scripted::in_turn([Answer::ok(config_map()), Answer::ok(metadata()), Answer::ok(config_map())]);
    let client = server.client();
    let get = || client.get::<[u8]>(&Resource::CONFIG_MAPS, Some("web"), "a");
    get().await.unwrap();
    let get_metadata = client.get::<PartialObjectMetadata>(&Resource::CONFIG_MAPS, Some("web"), "a");
    let object = get_metadata.metadata_only().at_least("7/1").await.unwrap();
    assert_eq!(object.metadata.unwrap().name.as_deref(), Some("a"));
    // A whole object in place of the metadata is refused.
    let error = get().metadata_only().at_least("0").await.unwrap_err();
    assert!(error.to_string().contains("instead of PartialObjectMetadata"), "{error}");
    let accepts: Vec<_> =
        server.asked().iter().map(|asked| asked.headers["accept"].to_str().unwrap().to_owned()).collect();
    let of_metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(accepts, ["application/vnd.kubernetes.protobuf,application/json", of_metadata, of_metadata]);
    let path = "/api/v1/namespaces/web/configmaps/a";
    assert_eq!(
        server.paths(),
        [path.to_owned(), format!("{path}?resourceVersion=7%2F1"), format!("{path}?resourceVersion=0")]
    );
    let error = get().at_least("").await.unwrap_err();
    assert_eq!(error.to_string(), r#"invalid resource version "": it must not be empty"#);
}

#[tokio::test(start_paused = true)]
async fn a_get_ends_at_its_deadline_and_at_its_limits() {
    // Before the head, in the body, and in the wait for a retry.
    for answer in [
        Answer::never(),
        Answer::pieces([config_map()[..9].to_vec()]).then_stalls(),
        Answer::status(503).header("retry-after", "20"),
    ] {
        for of_client in [false, true] {
            let client = Scripted::always(answer.clone()).client();
            let started = tokio::time::Instant::now();
            let get = |client: &Client| client.get::<[u8]>(&Resource::CONFIG_MAPS, Some("web"), "a");
            let error = if of_client {
                get(&client.deadline(SECOND * 10)).await
            } else {
                get(&client.deadline(SECOND)).deadline(SECOND * 10).await
            };
            let error = error.unwrap_err();
            assert!(is_deadline(&error), "{error}");
            assert_eq!(started.elapsed().as_secs(), 10, "{error}");
        }
    }
    let client = Scripted::always(Answer::ok(config_map())).client().retry(Retry::never());
    let size = config_map().len() as u64;
    for (limits, expected) in [
        (Limits::default().item_size(size), None),
        (Limits::default().item_size(size - 1), Some(Limit::ItemSize)),
        (Limits::default().bytes(size - 1), Some(Limit::Bytes)),
    ] {
        let get = client.get::<[u8]>(&Resource::CONFIG_MAPS, Some("web"), "a").limits(limits);
        let of_client = client.clone().limits(limits);
        for got in [get.await, of_client.get::<[u8]>(&Resource::CONFIG_MAPS, Some("web"), "a").await] {
            assert_eq!(got.err().and_then(|error| error.limit()), expected, "{limits:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_have_the_defaults_of_the_client() {
    let two = || Answer::ok(config_maps::list("7", [("a", 5), ("b", 6)]));
    let client = Scripted::always(two()).client().limits(Limits::default().items(1));
    let list = |client: &Client| client.list::<[u8]>(&Resource::CONFIG_MAPS, &ListParams::default());
    assert_eq!(list(&client).into_vec().await.unwrap_err().limit(), Some(Limit::Items));
    assert_eq!(list(&client).limits(Limits::default()).into_vec().await.unwrap().0.len(), 2);

    let frame = config_maps::added("a", 8);
    let client = Scripted::always(Answer::pieces([frame.clone()])).client();
    let client = client.limits(Limits::default().item_size(frame.len() as u64 / 2));
    let mut watch = client.watch::<[u8]>(&Resource::CONFIG_MAPS, &WatchParams::from_version("7"));
    assert_eq!(watch.next().await.unwrap().unwrap_err().limit(), Some(Limit::ItemSize));

    let slow = Scripted::always(two().after(SECOND * 5)).client().deadline(SECOND);
    assert!(is_deadline(&list(&slow).into_vec().await.unwrap_err()));
    assert_eq!(list(&slow).deadline(SECOND * 9).into_vec().await.unwrap().0.len(), 2);
    // A watch has no deadline, and neither has the list in place of its initial events.
    let answers = [Answer::status(422), two().after(SECOND * 5)];
    let client = Scripted::in_turn(answers).client().deadline(SECOND);
    let mut watch = client.watch::<[u8]>(&Resource::CONFIG_MAPS, &WatchParams::with_initial_state());
    assert!(watch.next().await.unwrap().is_ok());
}

/// A list of metadata: the names, the continue token and the number of remaining items.
fn page(names: &[&str], token: &str, remaining: Option<i64>) -> Answer {
    let mut meta = [len_field(2, b"7"), len_field(3, token.as_bytes())].concat();
    if let Some(remaining) = remaining {
        meta.push(4 << 3);
        let mut rest = remaining.cast_unsigned();
        while rest >= 0x80 {
            meta.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        meta.push(rest.to_le_bytes()[0]);
    }
    let items = names.iter().map(|name| len_field(2, &config_maps::config_map(name, 5)));
    let raw = [len_field(1, &meta)].into_iter().chain(items).collect::<Vec<_>>().concat();
    Answer::ok(body_of("meta.k8s.io/v1", "PartialObjectMetadataList", &raw))
}

#[tokio::test(start_paused = true)]
async fn counts_by_the_servers_number_or_by_pages_of_metadata() {
    let everything = Selection::all;
    let labels = || Selection::all().labels("app=web".parse().unwrap());
    let shard = || Selection::all().shard(listwatch::Shard::new(0, 1).unwrap());
    let (first, second) = (|| page(&["a", "b"], "t", None), || page(&["c"], "", None));
    for (answers, selection, objects, is_exact, requests) in [
        (vec![page(&[], "", None)], everything(), 0, true, "1"),
        (vec![page(&["a"], "", None)], everything(), 1, true, "1"),
        (vec![page(&["a"], "t", Some(999_999))], everything(), 1_000_000, false, "1"),
        (vec![page(&["a"], "t", Some(i64::MAX))], everything(), 1 << 63, false, "1"),
        // The server does not count, or has no sensible number.
        (vec![page(&["a"], "t", None), first(), second()], everything(), 3, true, "1 500 500"),
        (vec![page(&["a"], "t", Some(-1)), first(), second()], everything(), 3, true, "1 500 500"),
        (vec![first(), second()], labels(), 3, true, "500 500"),
        (vec![first(), second()], shard(), 3, true, "500 500"),
        // A page has expired: only the new snapshot counts.
        (vec![first(), Answer::status(410), second()], labels(), 1, true, "500 500 500"),
    ] {
        let server = Scripted::in_turn(answers);
        // A limit of items is for callers that keep them.
        let client = server.client().limits(Limits::default().items(1));
        let count = client.count(&Resource::CONFIG_MAPS, &selection, Some("web")).await.unwrap();
        assert_eq!((count.objects, count.is_exact, &*count.resource_version), (objects, is_exact, "7"));
        let limits =
            server.asked().iter().map(|asked| asked.parameter("limit").unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(limits.join(" "), requests);
        let all = server.asked();
        assert!(all.iter().all(|asked| asked.headers["accept"].to_str().unwrap().contains("as=PartialObjectMetadata")));
        assert!(all.iter().all(|asked| asked.path() == "/api/v1/namespaces/web/configmaps"));
    }
    let slow =
        Scripted::in_turn([page(&["a"], "t", None).after(SECOND), first().after(SECOND), second().after(SECOND)]);
    let count = slow.client().deadline(SECOND * 5 / 2);
    let error = count.count(&Resource::CONFIG_MAPS, &everything(), None).await.unwrap_err();
    assert!(is_deadline(&error), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_list_of_namespaces_names_the_namespace() {
    let server = Scripted::in_turn([Answer::ok(config_maps::list("7", [("a", 5)])), Answer::status(403)]);
    let client = server.client();
    let list = client.list::<[u8]>(&Resource::CONFIG_MAPS, &ListParams::default());
    let error = list.namespaces(["x", "y"]).into_vec().await.unwrap_err();
    assert_eq!((error.namespace(), error.items()), (Some("y"), 1));
    assert!(error.to_string().contains(r#", in namespace "y""#), "{error}");
}
