//! Objects that do not fit the type of a watch.

use listwatch::client::{Client, Error, Resource, WatchEvent, WatchParams};
use listwatch::{Item, Json, Tolerant, UndecodableObject};

use crate::exact;
use crate::support::chain;
use crate::support::transport::{Answer, Scripted};

#[derive(Debug, serde::Deserialize)]
struct Widget {
    spec: Spec,
}

#[derive(Debug, serde::Deserialize)]
struct Spec {
    size: u32,
}

fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget")
}

/// An event of the widget `name`, whose size is JSON.
fn event(event: &str, name: &str, version: u32, size: &str) -> String {
    format!(
        r#"{{"type":"{event}","object":{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"{version}"}},"spec":{{"size":{size}}}}}}}"#
    ) + "\n"
}

fn server() -> Scripted {
    let first = [
        event("ADDED", "a", 8, "3"),
        event("ADDED", "b", 9, "\"large\""),
        event("MODIFIED", "b", 10, "-1"),
        event("DELETED", "b", 11, "null"),
    ];
    Scripted::in_turn([Answer::pieces(first), Answer::pieces([event("MODIFIED", "a", 12, "4")])])
        .afterwards(Answer::status(410))
}

async fn events<I: Item>(client: &Client, params: &WatchParams) -> (Vec<WatchEvent<I::Owned>>, Error) {
    let mut watch = client.watch::<I>(&widgets(), params);
    let mut events = Vec::new();
    loop {
        match watch.next().await.expect("the watch ends in an error") {
            Ok(event) => events.push(event),
            Err(error) => return (events, error),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_ends_a_watch_unless_it_is_tolerant() {
    let (strict, error) = events::<Json<Widget>>(&server().client(), &exact(7)).await;
    assert_eq!(strict.len(), 1);
    assert!(chain(&error).starts_with("cannot read event 1, "), "{}", chain(&error));

    let tolerant = server();
    let (events, error) = events::<Tolerant<Json<Widget>>>(&tolerant.client(), &exact(7)).await;
    let seen = |object: Result<Box<Widget>, UndecodableObject>| match object {
        Ok(widget) => widget.spec.size.to_string(),
        Err(undecodable) => chain(&undecodable),
    };
    let written: Vec<_> = events
        .into_iter()
        .map(|event| match event {
            WatchEvent::Added(object) => format!("+{}", seen(object)),
            WatchEvent::Modified(object) => format!("~{}", seen(object)),
            WatchEvent::Deleted(object) => format!("-{}", seen(object)),
            other => format!("{other:?}"),
        })
        .collect();
    let because = "cannot decode the JSON: invalid";
    assert_eq!(
        written,
        [
            "+3".to_owned(),
            format!(
                "+cannot decode shop/b at version 9: {because} type: string \"large\", expected u32 at line 1 column 134"
            ),
            format!(
                "~cannot decode shop/b at version 10: {because} value: integer `-1`, expected u32 at line 1 column 130"
            ),
            format!("-cannot decode shop/b at version 11: {because} type: null, expected u32 at line 1 column 132"),
            "~4".to_owned(),
        ]
    );
    // The version to resume from passes the objects. Further changes may have the version of the last one.
    assert!(error.is_expired(), "{error}");
    let versions: Vec<_> =
        tolerant.asked().iter().map(|asked| asked.parameter("resourceVersion").map(str::to_owned)).collect();
    assert_eq!(versions[..2], [Some("7".to_owned()), Some("10".to_owned())]);
}
