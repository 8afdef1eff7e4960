//! A watch that begins with the collection: by initial events, or by a list if they fail.

use listwatch::Limits;
use listwatch::client::{Client, Resource, Selection, TransportErrorKind, WatchParams};

use crate::support::config_maps::{added, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::{Name, SECOND, kinds, list, name, resumed, watch};

#[tokio::test(start_paused = true)]
async fn begins_with_the_collection() {
    let whole = || Answer::pieces([added("a", 5), added("b", 3), initial_end(8)]);
    let half = || Answer::pieces([added("a", 5)]);
    let fatal = "the script has ended";
    for (answers, expected, requests, ends) in [
        (vec![whole(), Answer::pieces([added("c", 9)])], "+a +b synced 8 +c", "initial 8 8", fatal),
        // Changes among the initial events are delivered, and the final bookmark may be older than they are.
        (
            vec![Answer::pieces([added("a", 5), event("MODIFIED", "a", 9), event("DELETED", "b", 10), initial_end(9)])],
            "+a ~a -b synced 9",
            "initial 9",
            fatal,
        ),
        // The final bookmark is older than a change: the server repeats the change.
        (
            vec![Answer::pieces([
                event("MODIFIED", "a", 9),
                event("MODIFIED", "a", 9),
                added("b", 5),
                initial_end(8),
                event("MODIFIED", "a", 9),
            ])],
            "~a ~a +b synced 8 ~a",
            "initial 8",
            fatal,
        ),
        (
            vec![
                Answer::pieces([event("MODIFIED", "a", 9)]),
                Answer::pieces([event("MODIFIED", "a", 9), initial_end(9)]),
            ],
            "~a reset ~a synced 9",
            "initial initial 9",
            fatal,
        ),
        // The watch cannot resume from the version of an initial event.
        (vec![half(), whole()], "+a reset +a +b synced 8", "initial initial 8", fatal),
        (vec![Answer::default(), whole()], "+a +b synced 8", "initial initial 8", fatal),
        // A second interruption leads to a list.
        (
            vec![half(), half(), list(&["a", "b"], "8")],
            "+a reset +a reset +a +b synced 8",
            "initial initial list 8",
            fatal,
        ),
        // An error response is not an interruption, and the first request without a response is retried.
        (
            vec![Answer::status(500), Answer::fails(TransportErrorKind::ReadIdle, ""), whole()],
            "+a +b synced 8",
            "initial initial initial 8",
            fatal,
        ),
        // A second request without a response leads to a list: a proxy may buffer a response until it ends.
        (
            vec![
                Answer::fails(TransportErrorKind::ReadIdle, ""),
                Answer::fails(TransportErrorKind::ReadIdle, ""),
                list(&["a"], "8"),
            ],
            "+a synced 8",
            "initial initial list 8",
            fatal,
        ),
        // Old servers, and servers that never end the initial events.
        (vec![Answer::status(422), list(&["a"], "8")], "+a synced 8", "initial list 8", fatal),
        (vec![Answer::status(400), list(&["a"], "8")], "+a synced 8", "initial list 8", fatal),
        (vec![half().then_stalls(), list(&["a"], "8")], "+a reset +a synced 8", "initial list 8", fatal),
        // An interrupted list starts over, too.
        (
            vec![Answer::status(422), list(&["a", "b"], "8").cut(3), Answer::status(503), list(&["a"], "9")],
            "+a +b reset +a synced 9",
            "initial list list list 9",
            fatal,
        ),
        (vec![Answer::status(422), list(&["a"], "")], "+a", "initial list", "metadata.resourceVersion"),
        // The error counts the items of all attempts.
        (
            vec![half(), half(), list(&["a", "b"], "8").cut(3), Answer::status(400)],
            "+a reset +a reset +a +b reset",
            "initial initial list list",
            "API error: 400, 4 items delivered",
        ),
        (vec![Answer::status(422), Answer::status(422)], "", "initial list", "API error: 422"),
        (vec![Answer::pieces([added("a", 5), b"\0\0\0\0".to_vec()])], "+a", "initial", "frame"),
    ] {
        begins(answers, expected, requests, ends).await;
    }
}

#[tokio::test(start_paused = true)]
async fn retries_until_the_collection_is_complete() {
    let whole = || Answer::pieces([added("a", 5), added("b", 3), initial_end(8)]);
    let fatal = "the script has ended";
    for (answers, expected, requests, ends) in [
        // A role or the resource itself may be created later.
        (
            vec![Answer::status(422), Answer::status(403), list(&["a"], "8")],
            "+a synced 8",
            "initial list list 8",
            fatal,
        ),
        (
            vec![Answer::status(404), Answer::status(403), Answer::status(403), whole()],
            "+a +b synced 8",
            "initial initial initial initial 8",
            fatal,
        ),
        // An expired version before the collection is complete, as an event and as a response.
        (
            vec![Answer::pieces([added("a", 5), error(410)]), whole()],
            "+a reset +a +b synced 8",
            "initial initial 8",
            fatal,
        ),
        (vec![Answer::status(410), whole()], "+a +b synced 8", "initial initial 8", fatal),
        (
            vec![Answer::status(410), Answer::status(410), list(&["a"], "8")],
            "+a synced 8",
            "initial initial list 8",
            fatal,
        ),
        (
            vec![Answer::status(422), Answer::status(410), list(&["a"], "8")],
            "+a synced 8",
            "initial list list 8",
            fatal,
        ),
    ] {
        begins(answers, expected, requests, ends).await;
    }
}

/// Checks the events that these answers lead to, the requests, and the error at the end.
async fn begins(answers: Vec<Answer>, expected: &str, requests: &str, ends: &str) {
    let server = Scripted::in_turn(answers);
    let (events, error, version) = resumed(watch(&server.client(), &WatchParams::with_initial_state())).await;
    assert_eq!(events.join(" "), expected, "{error}");
    assert!(error.to_string().contains(ends), "{error}, expected {ends}");
    assert_eq!(kinds(&server), requests, "{events:?}");
    let is_synced = expected.contains("synced");
    assert_eq!(version.as_deref(), requests.rsplit(' ').next().filter(|_| is_synced), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn lists_where_initial_events_are_refused() {
    let big = "x".repeat(2000);
    let late = |list: Answer| list.paced(SECOND * 60);
    let half = || list(&["a"], "8").cut(3);
    let all = "/api/v1/namespaces/web/configmaps?labelSelector=a%3Db";
    let page = "/api/v1/namespaces/web/configmaps?labelSelector=a%3Db&limit=500";
    for (lists, requests, ends) in [
        (vec![list(&["a"], "8")], vec![all], "the script has ended"),
        (vec![list(&[&big], "8")], vec![all], "over the limit of 1000 bytes"),
        // In pages, once the server's request timeout of 60 s has interrupted it.
        (vec![half(), half(), Answer::status(400)], vec![all, all, all], "API error: 400"),
        (vec![late(half()), half(), Answer::status(400)], vec![all, page, page], "API error: 400"),
    ] {
        let server = Scripted::in_turn(std::iter::once(Answer::status(422)).chain(lists));
        let options = WatchParams::with_initial_state().timeout(SECOND * 40);
        let options = options.selection(Selection::all().labels("a=b".parse().unwrap()));
        let watch = watch(&server.client(), &options).namespace("web").limits(Limits::default().item_size(1000));
        let (_, error, _) = resumed(watch).await;
        assert!(error.to_string().contains(ends), "{error}, expected {ends}");
        let paths = server.paths();
        let lists: Vec<_> = paths.iter().filter(|path| !path.contains("watch=1")).collect();
        assert_eq!(lists, requests);
    }
}

#[tokio::test(start_paused = true)]
async fn remembers_for_an_hour_that_a_list_succeeded_where_initial_events_failed() {
    let stalled = || Answer::pieces([added("a", 5)]).then_stalls();
    let listed = || list(&["a"], "8");
    for (case, answers, remembers) in [
        ("refused", vec![Answer::status(422), listed()], true),
        ("never ended", vec![stalled(), listed()], true),
        ("busy", vec![Answer::status(500)], false),
        ("the list was refused as well: the request is wrong, not the server", vec![Answer::status(400); 2], false),
        ("the list stalled as well: the server is slow", vec![stalled(), list(&["a"], "8").cut(3)], false),
    ] {
        let server = Scripted::in_turn(answers);
        let client = server.client();
        let _ = resumed(watch(&client, &WatchParams::with_initial_state())).await;
        let next = async |client: &Client| {
            server.forget();
            let _ = resumed(watch(client, &WatchParams::with_initial_state())).await;
            kinds(&server)
        };
        tokio::time::advance(SECOND * 3500).await;
        assert_eq!(next(&client.clone()).await, if remembers { "list" } else { "initial" }, "{case}");
        // Other resources are not affected.
        server.forget();
        let secrets = client.watch_with(&Resource::SECRETS, &WatchParams::with_initial_state(), name as Name);
        let _ = resumed(secrets).await;
        assert_eq!(kinds(&server), "initial", "{case}");
        tokio::time::advance(SECOND * 200).await;
        assert_eq!(next(&client).await, "initial", "{case}: the server may have been upgraded");
    }
}
