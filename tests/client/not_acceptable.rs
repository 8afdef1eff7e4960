//! Aggregated API servers that return 406 for protobuf, as an HTTP status or as a Status in a response with 200.

use std::collections::BTreeMap;

use listwatch::client::{Client, ListParams, Resource, Selection, WatchEvent, WatchParams};
use listwatch::{ItemError, ItemRef};

use crate::support::transport::{Answer, Asked, Scripted};
use crate::support::{body_of, status};

fn flunders() -> Resource {
    Resource::new("wardle.example.com", "v1", "flunders", "Flunder")
}

const ITEM: &str =
    r#"{"kind":"Flunder","apiVersion":"wardle.example.com/v1","metadata":{"name":"f","resourceVersion":"5"}}"#;
const METADATA: &str =
    r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"f","resourceVersion":"5"}}"#;

/// A server that accepts only these forms of JSON, and otherwise returns 406 in this way.
fn server(refusal: u16, accepts: &'static [&'static str]) -> Scripted {
    Scripted::by(move |asked: &Asked, _| {
        let accept = asked.headers["accept"].to_str().unwrap();
        if !accepts.contains(&accept) {
            return Answer::ok(body_of("v1", "Status", &status(406))).code(refusal);
        }
        let (item, list) = if accept.contains("as=") {
            (METADATA, r#""kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1""#)
        } else {
            (ITEM, r#""kind":"FlunderList","apiVersion":"wardle.example.com/v1""#)
        };
        if asked.parameter("watch").is_some() {
            let end = r#"{"type":"BOOKMARK","object":{"kind":"Flunder","apiVersion":"wardle.example.com/v1","metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
            let end = end.replace(
                r#""kind":"Flunder","apiVersion":"wardle.example.com/v1""#,
                &item[1..item.find(r#","metadata"#).unwrap()],
            );
            return Answer::ok(format!("{{\"type\":\"ADDED\",\"object\":{item}}}\n{end}\n")).then_stalls();
        }
        if asked.path().ends_with("/f") {
            return Answer::ok(item);
        }
        Answer::ok(format!(r#"{{{list},"metadata":{{"resourceVersion":"5"}},"items":[{item}]}}"#))
    })
}

/// The number of requests for each Accept header.
fn accepted(server: &Scripted) -> BTreeMap<String, usize> {
    let accepted = server.asked().into_iter().map(|asked| asked.headers["accept"].to_str().unwrap().to_owned());
    accepted.fold(BTreeMap::new(), |mut counts, accept| {
        *counts.entry(accept).or_default() += 1;
        counts
    })
}

fn name(item: ItemRef<'_>) -> Result<String, ItemError> {
    Ok(item.meta()?.name().into_owned())
}

async fn listed(client: &Client, selection: Selection) -> Result<Vec<String>, String> {
    let listed = client.list_with(&flunders(), &ListParams::new(selection), name).into_vec().await;
    listed.map(|(names, _)| names).map_err(|error| error.to_string())
}

async fn watched(client: &Client, selection: Selection) -> WatchEvent<String> {
    let params = WatchParams::with_initial_state().selection(selection);
    let mut events = client.watch_with(&flunders(), &params, name).fail_fast();
    events.next().await.unwrap().unwrap()
}

const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
const LIST_JSON: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const OBJECT_JSON: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[tokio::test(start_paused = true)]
async fn requests_json_after_a_406_and_remembers_it() {
    for refusal in [406, 200] {
        let server = server(refusal, &["application/json"]);
        let client = server.client();
        assert_eq!(listed(&client, Selection::all()).await.unwrap(), ["f"]);
        // Clones remember it too, for all requests for the resource.
        let clone = client.clone();
        assert!(matches!(watched(&clone, Selection::all()).await, WatchEvent::Added(name) if name == "f"));
        assert_eq!(&*clone.get::<[u8]>(&flunders(), Some("a"), "f").await.unwrap(), ITEM.as_bytes());
        let expected = [(BOTH.to_owned(), 1), ("application/json".to_owned(), 3)];
        assert_eq!(accepted(&server), BTreeMap::from(expected), "{refusal}");

        // It knows nothing of other resources.
        let others = Resource::new("wardle.example.com", "v1", "others", "Other");
        client.list_with(&others, &ListParams::default(), name).into_vec().await.unwrap_err();
        assert_eq!(accepted(&server)[BOTH], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_and_gets_fall_back_too() {
    for refusal in [406, 200] {
        let one = server(refusal, &["application/json"]);
        assert!(matches!(watched(&one.client(), Selection::all()).await, WatchEvent::Added(name) if name == "f"));
        assert_eq!(one.requests(), 2, "{refusal}");
        let one = server(refusal, &["application/json"]);
        assert_eq!(&*one.client().get::<[u8]>(&flunders(), Some("a"), "f").await.unwrap(), ITEM.as_bytes());
        assert_eq!(one.requests(), 2, "{refusal}");
    }
}

/// Whole objects never replace metadata.
#[tokio::test(start_paused = true)]
async fn metadata_stays_metadata() {
    for refusal in [406, 200] {
        let metadata = || Selection::all().metadata_only();
        let some = server(refusal, &["application/json", LIST_JSON, OBJECT_JSON]);
        let client = some.client();
        assert_eq!(listed(&client, metadata()).await.unwrap(), ["f"]);
        assert!(matches!(watched(&client, metadata()).await, WatchEvent::Added(name) if name == "f"));
        assert_eq!((accepted(&some)[LIST_JSON], accepted(&some)[OBJECT_JSON], some.requests()), (1, 1, 3));
        // Whole objects may still be available in protobuf.
        assert_eq!(listed(&client, Selection::all()).await.unwrap(), ["f"]);
        assert_eq!(accepted(&some)[BOTH], 1);

        let none = server(refusal, &["application/json"]);
        let error = listed(&none.client(), metadata()).await.unwrap_err();
        assert!(error.starts_with("API error: 406"), "{error}");
        assert_eq!(none.requests(), 2, "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_406_for_json_is_an_error() {
    let none = server(406, &[]);
    for selection in [Selection::all(), Selection::all().json(), Selection::all()] {
        let error = listed(&none.client(), selection).await.unwrap_err();
        assert!(error.starts_with("API error: 406"), "{error}");
    }
    assert_eq!(accepted(&none), BTreeMap::from([(BOTH.to_owned(), 2), ("application/json".to_owned(), 3)]));
}

/// The server may be upgraded, and JSON costs both sides more.
#[tokio::test(start_paused = true)]
async fn requests_protobuf_again_after_an_hour() {
    let server = crate::support::transport::Scripted::always(crate::support::transport::Answer::status(406));
    let client = server.client();
    let mut accepted = Vec::new();
    for minutes in [0, 1, 58, 2, 1] {
        tokio::time::sleep(std::time::Duration::from_secs(60 * minutes)).await;
        server.forget();
        let list = client.list::<[u8]>(&listwatch::client::Resource::PODS, &listwatch::client::ListParams::default());
        assert_eq!(list.into_vec().await.unwrap_err().code(), Some(406));
        accepted.push(server.asked().iter().filter(|asked| asked.headers["accept"] != "application/json").count());
    }
    assert_eq!(accepted, [1, 0, 0, 1, 0]);
}
