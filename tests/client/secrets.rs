//! A token is never shown: not in an error, a `Debug` form, a summary or a log line, whatever echoes it.
//!
//! `.ci/run` sets `LISTWATCH_WATCH_LOGS`, and searches what the tests of all files print and log.

use std::fmt::Debug;
use std::process::Command;

use listwatch::client::{Client, Config, Error, ListParams, Resource, Retry};
use listwatch::{Status, StatusCause, StatusDetails};
use listwatch_testserver::{Answer, Body, TOKEN, leak, recorded_pods};
use prost::Message as _;

use crate::support::process::test_name;
use crate::support::server::{anonymous, authority, client, client_of, serve};
use crate::support::{body_of, said};

const WATCH_LOGS: &str = "LISTWATCH_WATCH_LOGS";
const PLANT: &str = "LISTWATCH_PLANT_A_LEAK";

#[track_caller]
fn clean(name: &str, shown: &impl Debug) {
    assert_eq!(leak(format!("{shown:?}").as_bytes()), None, "{name}");
}

#[track_caller]
fn clean_error(name: &str, error: &Error) {
    assert_eq!(leak(said(error).as_bytes()), None, "{name}");
}

fn status() -> Status {
    let token = || TOKEN.to_owned();
    let mut cause = StatusCause::default();
    (cause.reason, cause.message, cause.field) = (token(), token(), token());
    let mut details = StatusDetails::default();
    details.causes = vec![cause];
    (details.name, details.group, details.kind, details.uid) = (token(), token(), token(), token());
    let mut status = Status::default();
    (status.details, status.code) = (Some(details), 418);
    (status.status, status.message, status.reason) = (token(), token(), token());
    status
}

fn status_in_json() -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"{TOKEN}","message":"{TOKEN}","reason":"{TOKEN}","details":{{"name":"{TOKEN}","group":"{TOKEN}","kind":"{TOKEN}","uid":"{TOKEN}","causes":[{{"reason":"{TOKEN}","message":"{TOKEN}","field":"{TOKEN}"}}]}},"code":418}}"#
    )
}

/// Bodies of a server, or of a proxy in its place, that have the token in every place.
fn echoes() -> Vec<(&'static str, Vec<u8>)> {
    // base64 of `user:`, the token and `!`.
    let encoded = "dXNlcjpzM2NyZXQtVDBrZW4ub2YrVGhlL1N1aXRlPT0h";
    let status = body_of("v1", "Status", &status().encode_to_vec());
    vec![
        ("a page", format!("<html>{TOKEN}, Bearer {TOKEN}, \"{TOKEN}\"</html>").into()),
        ("a page that wraps", format!("<html>\n{}\n{}</html>", &TOKEN[..14], &TOKEN[14..]).into()),
        ("a page in base64", format!("<html>{encoded}</html>").into()),
        ("a short text", TOKEN.into()),
        ("a Status", status.clone()),
        ("a Status after a list", [recorded_pods(), status].concat()),
        ("a Status in JSON", status_in_json().into()),
        ("another kind", body_of("v1", &format!("{TOKEN}List"), b"\x0a\0")),
        ("another version", body_of(TOKEN, "PodList", b"\x0a\0")),
        ("not a list", body_of("v1", TOKEN, b"\x0a\0")),
        ("another kind in JSON", format!(r#"{{"kind":"{TOKEN}List","apiVersion":"{TOKEN}","items":[]}}"#).into()),
        ("malformed JSON", format!(r#"{{"{TOKEN}": {TOKEN}"#).into()),
        ("another kind in place of groups", format!(r#"{{"kind":"{TOKEN}"}}"#).into()),
        ("a whole list", recorded_pods()),
    ]
}

#[tokio::test]
async fn an_echoed_token_is_never_shown() {
    if std::env::var_os(PLANT).is_some() {
        listwatch_testserver::watch_logs();
        tracing::trace!("Bearer {TOKEN}");
    }
    for (name, body) in echoes() {
        for code in [200, 401, 403, 410, 503] {
            let answer = Answer::ok(Body::replay(body.clone())).status(code);
            let answer = answer.header("audit-id", TOKEN).content_type(&format!("text/{TOKEN}"));
            let answer = answer.header("warning", &format!("299 - \"{TOKEN}\"")).header("retry-after", TOKEN);
            let server = serve(answer).await;
            for http2 in [false, true] {
                let client = client(&server, http2).retry(Retry::never());
                let options = ListParams::default();
                match client.list::<[u8]>(&Resource::PODS, &options).into_vec().await {
                    Ok((_, summary)) => clean(name, &summary),
                    Err(error) => clean_error(name, &error),
                }
                let got = client.get::<[u8]>(&Resource::PODS, Some("default"), "a").await;
                let errors = [got.err(), client.resolve("widgets").await.err()];
                errors.iter().flatten().for_each(|error| clean_error(name, error));
            }
        }
    }
}

#[tokio::test]
async fn no_debug_form_shows_the_token() {
    let file = std::env::temp_dir().join(format!("listwatch-secrets-{}", std::process::id()));
    std::fs::write(&file, TOKEN).unwrap();
    let server = serve(Answer::ok(Body::replay(recorded_pods()))).await;
    for by_file in [false, true] {
        let builder = || {
            let config = Config::new(server.url()).ca_pem(authority());
            if by_file { config.token_file(&file) } else { config.bearer_token(TOKEN) }
        };
        let key = format!("-----BEGIN PRIVATE KEY-----\n{TOKEN}\n-----END PRIVATE KEY-----");
        clean("builder", &builder());
        clean("builder with a key", &builder().client_certificate("", &key));
        clean("an invalid key", &builder().client_certificate("", &key).build().map(|_| ()).unwrap_err());
        clean("transport", &builder().build().unwrap());
        let client = Client::new(builder().build().unwrap());
        clean("client", &client);
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        clean("list", &list);
        let mut items = list;
        items.next().await.unwrap().unwrap();
        clean("items", &items);
    }
    // The part of the token that a URL may contain unescaped.
    let token = &TOKEN[..15];
    for url in [format!("https://{token}@host"), format!("https://u:{token}@host"), format!("https://h/?t={TOKEN}")] {
        clean("a URL", &Config::new(&url));
        clean("a URL that is refused", &Config::new(&url).build().map(|_| ()).unwrap_err());
    }
    // A token that cannot be a header.
    std::fs::write(&file, format!("{TOKEN}\n{TOKEN}")).unwrap();
    let client = client_of(anonymous(&server.url(), false).token_file(&file));
    let error = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
    assert!(error.to_string().contains("the token has a character that no header can carry"), "{error}");
    clean_error("a token that cannot be a header", &error);
    std::fs::remove_file(&file).unwrap();
}

/// With `LISTWATCH_WATCH_LOGS`, a test succeeds while its log has no token, and ends its process if the log has one.
#[test]
fn the_log_is_watched() {
    let this_test = test_name(module_path!(), "an_echoed_token_is_never_shown");
    for plant in [false, true] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &this_test]).env(WATCH_LOGS, "1").env_remove(PLANT);
        if plant {
            child.env(PLANT, "1");
        }
        let output = child.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !plant, "{stderr}");
        assert_eq!(stderr.contains("the token is in a log line"), plant, "{stderr}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("running 1 test\n"), "{stdout}");
    }
}
