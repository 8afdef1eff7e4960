//! White space before JSON is accepted wherever a body is read, as Go's `encoding/json` accepts it; a body that is
//! neither JSON nor protobuf is an error that shows its beginning.

use listwatch::client::{Error, ErrorKind, ListParams, Resource, Retry, WatchParams};
use listwatch::{BodyFormat, Json, ListReader};
use serde_json::Value;

use crate::support::transport::{Answer, Scripted};

const LIST: &str = r#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"w"}}]}"#;
const WIDGET: &str = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","resourceVersion":"7"}}"#;
const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","message":"gone","code":410}"#;

fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget")
}

fn server(body: &str, piece: usize) -> Scripted {
    Scripted::always(Answer::ok(body.to_owned()).pieces_of(piece))
}

async fn listed(body: &str, piece: usize) -> Result<usize, Error> {
    let client = server(body, piece).client().retry(Retry::never());
    Ok(client.list::<Json<Value>>(&widgets(), &ListParams::default()).into_vec().await?.0.len())
}

#[tokio::test(start_paused = true)]
async fn white_space_may_precede_json() {
    for spaces in ["", " ", "\n", "\r\n\t  ", &" ".repeat(5000)] {
        for piece in [1, 3, 100_000] {
            let spaced = |body: &str| format!("{spaces}{body}{spaces}");
            assert_eq!(listed(&spaced(LIST), piece).await.unwrap(), 1);
            let error = listed(&spaced(STATUS), piece).await.unwrap_err();
            assert!(error.is_expired(), "{error}");

            let client = server(&spaced(WIDGET), piece).client();
            let widget = client.get::<Json<Value>>(&widgets(), Some("a"), "w").await.unwrap();
            assert_eq!(widget["metadata"]["name"], "w");
            let error =
                server(&spaced(STATUS), piece).client().get::<[u8]>(&widgets(), Some("a"), "w").await.unwrap_err();
            assert!(error.is_expired(), "{error}");

            let client = server(&spaced(&format!(r#"{{"type":"ADDED","object":{WIDGET}}}"#)), piece).client();
            let mut events = client.watch::<[u8]>(&widgets(), &WatchParams::from_version("5")).open().await.unwrap();
            assert!(events.next().await.unwrap().is_ok());
        }
        let body = format!("{spaces}{LIST}");
        assert_eq!(ListReader::new::<Json<Value>>(body.as_bytes()).map(Result::unwrap).count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn another_body_is_an_error_that_shows_its_beginning() {
    for (body, format, quoted) in [
        ("\n\n <html><title>Sign in</title></html>", BodyFormat::Html, Some("<html><title>Sign in</title></html>")),
        ("  503 no healthy upstream", BodyFormat::Text, Some("503 no healthy upstream")),
        ("kind: PodList", BodyFormat::Text, Some("kind: PodList")),
        (" k8s\0", BodyFormat::Text, None),
        // Go's encoding/json accepts no byte order mark either.
        ("\u{feff}{}", BodyFormat::Binary, Some("\u{feff}{}")),
    ] {
        for piece in [1, 100_000] {
            let of_get = server(body, piece).client().get::<[u8]>(&widgets(), Some("a"), "w").await.unwrap_err();
            for error in [listed(body, piece).await.unwrap_err(), of_get] {
                let ErrorKind::UnexpectedBody { format: found, snippet, .. } = error.kind() else {
                    panic!("{body:?}: {error}");
                };
                assert_eq!((*found, snippet.as_deref()), (format, quoted), "{body:?} in pieces of {piece}");
            }
        }
    }
}
