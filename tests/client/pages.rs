//! Pages, namespaces and shards: no item twice, none missing, no two snapshots mixed unseen.

use std::sync::{Arc, Mutex};

use crate::support::fixture;
use crate::support::server::{client, recorded, serve_by, serve_in_turn};
use listwatch::client::{Client, List, ListOptions, Resource, ResourceVersion, Shard};
use listwatch::{Encoding, ItemError, ItemRef};
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

fn expired() -> Answer {
    recorded("error-410-continue.pb").status(410)
}

fn pods(client: &Client, options: &ListOptions) -> List<[u8]> {
    client.list(&Resource::PODS, options)
}

fn name(pod: &[u8]) -> String {
    ItemRef::new(Encoding::Protobuf, pod).meta().unwrap().name().into_owned()
}

fn paths(server: &Server) -> Vec<String> {
    server.requests().into_iter().map(|request| request.path).collect()
}

const PAGES: [&str; 3] = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"];

#[tokio::test]
async fn lists_in_pages_at_one_version() {
    let exact = ListOptions::default().resource_version(ResourceVersion::Exact("7".into()));
    for http2 in [false, true] {
        for (options, version) in
            [(ListOptions::default(), ""), (exact.clone(), "&resourceVersion=7&resourceVersionMatch=Exact")]
        {
            let server = serve_in_turn(PAGES.map(recorded)).await;
            let list = pods(&client(&server, http2), &options).pages(50);
            let progress = list.progress();
            let (items, summary) = list.into_vec().await.unwrap();
            let mut names: Vec<_> = items.iter().map(|pod| name(pod)).collect();
            names.sort();
            names.dedup();
            assert_eq!(
                (names.len() as u64, summary.items, summary.pages, summary.attempts),
                (items.len() as u64, names.len() as u64, 3, 3)
            );
            assert!(summary.consistent && summary.list_meta.continue_token.is_empty());
            let total: u64 = PAGES.iter().map(|page| fixture(page).len() as u64).sum();
            assert_eq!((summary.bytes, summary.wire_bytes), (total, total));
            assert_eq!((progress.bytes(), progress.items()), (total, summary.items));
            let paths = paths(&server);
            assert_eq!(paths[0], format!("/api/v1/pods?limit=50{version}"));
            // The token holds the version: it is never sent beside it.
            for path in &paths[1..] {
                assert!(
                    path.starts_with("/api/v1/pods?limit=50&continue=") && !path.contains("resourceVersion"),
                    "{path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_limit_alone_is_one_page() {
    for http2 in [false, true] {
        let server = serve_in_turn(PAGES.map(recorded)).await;
        let list = pods(&client(&server, http2), &ListOptions::default().limit(50));
        let (items, summary) = list.into_vec().await.unwrap();
        assert_eq!((items.len(), summary.pages, server.requests().len()), (50, 1, 1));
        assert!(!summary.list_meta.continue_token.is_empty());
    }
}

/// Each page has tries of its own, and an error in one leaves exactly the pages before it.
#[tokio::test]
async fn pages_are_tried_again() {
    let busy = || Answer::ok(Body::replay("")).status(503);
    for http2 in [false, true] {
        let server =
            serve_in_turn([recorded(PAGES[0]), busy(), busy(), recorded(PAGES[1]), busy(), recorded(PAGES[2])]).await;
        let (_, summary) = pods(&client(&server, http2), &ListOptions::default()).pages(50).into_vec().await.unwrap();
        assert_eq!((summary.pages, summary.attempts), (3, 6));

        let server = serve_in_turn([recorded(PAGES[0]), busy()]).await;
        let error = pods(&client(&server, http2), &ListOptions::default()).pages(50).into_vec().await.unwrap_err();
        assert_eq!((error.code(), error.items(), server.requests().len()), (503, 50, 6));
    }
}

#[tokio::test]
async fn expiry_ends_the_list() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), expired()]).await;
        let mut seen = 0;
        let list = pods(&client(&server, http2), &ListOptions::default()).pages(50);
        let error = list
            .try_for_each(|_| {
                seen += 1;
                Ok::<_, listwatch::client::Error>(())
            })
            .await
            .unwrap_err();
        assert!(error.is_expired(), "{error}");
        assert_eq!((error.items(), seen, server.requests().len()), (50, 50, 2));
    }
}

#[tokio::test]
async fn expiry_starts_over() {
    for http2 in [false, true] {
        let server = serve_in_turn([
            recorded(PAGES[0]),
            recorded(PAGES[1]),
            expired(),
            recorded(PAGES[0]),
            recorded(PAGES[1]),
            recorded(PAGES[2]),
        ])
        .await;
        let client = client(&server, http2);
        // Told before any item of the second snapshot.
        let log = Arc::new(Mutex::new(Vec::new()));
        let (items, restarts) = (Arc::clone(&log), Arc::clone(&log));
        let list = pods(&client, &ListOptions::default()).namespace("team-1").pages(50).map_item(move |_| {
            items.lock().unwrap().push(None);
            Ok::<_, ItemError>(())
        });
        let list = list.start_over(move |restart| restarts.lock().unwrap().push(Some(restart)));
        let (items, summary) = list.into_vec().await.unwrap();
        assert_eq!((summary.restarts, summary.pages, summary.attempts, summary.consistent), (1, 3, 6, true));
        assert_eq!(
            (items.len() as u64, summary.namespaces.len()),
            (summary.items, 1),
            "the first snapshot is thrown away"
        );
        let log = log.lock().unwrap().clone();
        assert_eq!(log.iter().position(Option::is_some), Some(100));
        let restart = log[100].clone().unwrap();
        assert_eq!((restart.items, restart.namespace.as_deref()), (100, Some("team-1")));
        assert_eq!(log.len() as u64, 101 + summary.items);
        assert!(!paths(&server)[3].contains("continue"));

        // Not for ever.
        let flip = |_: &_, n: usize| if n.is_multiple_of(2) { recorded(PAGES[0]) } else { expired() };
        let server = serve_by(flip).await;
        let list = pods(&self::client(&server, http2), &ListOptions::default()).pages(50).start_over(|_| {});
        assert!(list.into_vec().await.unwrap_err().is_expired());
        assert_eq!(server.requests().len(), 8);

        // A first page that has expired is no page of ours.
        let server = serve_in_turn([recorded("error-410-exact.pb").status(410)]).await;
        let list =
            pods(&self::client(&server, http2), &ListOptions::default()).pages(50).start_over(|_| panic!("no restart"));
        assert!(list.into_vec().await.unwrap_err().is_expired());
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn expiry_goes_on_inconsistently() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), expired(), recorded(PAGES[1]), recorded(PAGES[2])]).await;
        let list = pods(&client(&server, http2), &ListOptions::default()).pages(50).go_on_inconsistently();
        let (items, summary) = list.into_vec().await.unwrap();
        assert!(!summary.consistent);
        assert_eq!((summary.pages, summary.restarts, summary.items), (3, 0, items.len() as u64));
        // The token of the 410, whose version is -1.
        let path = &paths(&server)[2];
        assert!(path.contains("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEs"), "{path}");

        // The offered token expires too, or there is none.
        for answers in [vec![recorded(PAGES[0]), expired()], vec![recorded("error-410-exact.pb").status(410)]] {
            let server = serve_in_turn(answers).await;
            let list = pods(&client(&server, http2), &ListOptions::default()).pages(50).go_on_inconsistently();
            assert!(list.into_vec().await.unwrap_err().is_expired());
            assert!(server.requests().len() <= 3);
        }
    }
}

#[tokio::test]
async fn several_namespaces() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), recorded(PAGES[2]), recorded("pods-empty.pb")]).await;
        let list = pods(&client(&server, http2), &ListOptions::default()).namespaces(["a", "b", "a"]).pages(50);
        let (items, summary) = list.into_vec().await.unwrap();
        assert_eq!(items.len() as u64, summary.items);
        let namespaces: Vec<_> = summary.namespaces.iter().map(|(namespace, _)| &**namespace).collect();
        assert_eq!(namespaces, ["a", "b"]);
        let paths = paths(&server);
        assert_eq!(paths.len(), 3);
        assert!(paths[1].starts_with("/api/v1/namespaces/a/pods?limit=50&continue="));
        assert_eq!(paths[2], "/api/v1/namespaces/b/pods?limit=50");
        // None is not all.
        let (items, summary) =
            pods(&client(&server, http2), &ListOptions::default()).namespaces([""; 0]).into_vec().await.unwrap();
        assert_eq!((items.len(), summary.attempts, server.requests().len()), (0, 0, 3));
    }
}

/// A server that knows shards, and one that does not: the rest is left out here, over pages and in JSON too.
#[tokio::test]
async fn shards() {
    let halves = [0, 1].map(|index| Shard::new(index, 2).unwrap());
    for http2 in [false, true] {
        let server = serve_in_turn([
            recorded("pods-shard.pb"),
            recorded("pods.pb"),
            recorded("pods.pb"),
            recorded("pods-empty.pb"),
        ])
        .await;
        let client = client(&server, http2);
        let list = |shard| pods(&client, &ListOptions::default().shard(shard)).into_vec();
        let (by_server, summary) = list(halves[0]).await.unwrap();
        assert!(!by_server.is_empty() && summary.other_shards == 0);
        let (here, summary) = list(halves[0]).await.unwrap();
        assert!(here == by_server);
        assert_eq!((summary.items, summary.other_shards, summary.skipped), (here.len() as u64, 120 - summary.items, 0));
        let (rest, summary) = list(halves[1]).await.unwrap();
        assert_eq!((rest.len() + here.len(), summary.other_shards), (120, here.len() as u64));
        assert!(list(halves[1]).await.unwrap().0.is_empty());

        let limits = listwatch::Limits::default().items(119);
        for (answers, bytes) in [(PAGES.map(recorded).to_vec(), 0), (vec![recorded("pods.pb")], 1)] {
            let server = serve_in_turn(answers).await;
            let all = self::client(&server, http2);
            let list = pods(&all, &ListOptions::default().shard(halves[0])).pages(50).limits(limits);
            let error = list.into_vec().await.unwrap_err();
            assert!(error.to_string().starts_with("the list has at least 120 items, "), "{bytes}: {error}");
        }
    }
}

#[tokio::test]
async fn metadata_only() {
    let options = ListOptions::default().metadata_only();
    for http2 in [false, true] {
        let server =
            serve_in_turn([recorded("pods-metadata.pb"), recorded("widgets-metadata.pb"), recorded("pods.pb")]).await;
        let client = client(&server, http2);
        let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
        assert!(!pods(&client, &options).into_vec().await.unwrap().0.is_empty());
        assert!(!client.list::<[u8]>(&widgets, &options).into_vec().await.unwrap().0.is_empty());
        let error = pods(&client, &options).into_vec().await.unwrap_err();
        let expected = "another kind: asked for PartialObjectMetadataList of \"meta.k8s.io/v1\", got PodList of \"v1\"";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn what_is_refused_is_not_sent() {
    let server = serve_in_turn([Answer::ok(Body::replay(recorded_pods()))]).await;
    let client = client(&server, false);
    let options = ListOptions::default();
    for (list, expected) in [
        (pods(&client, &options).pages(0), "options: limit 0"),
        (pods(&client, &options).namespace("Team"), "path: namespace \"Team\" must be"),
        (pods(&client, &options).namespaces(["ok", ""]), "path: namespace \"\" must be"),
        (client.list(&Resource::NODES, &options).namespace("a"), "path: nodes is not namespaced"),
        (
            pods(&client, &options.clone().continue_token("t").resource_version(ResourceVersion::Exact("7".into()))),
            "options: a resource version beside a continue token",
        ),
    ] {
        let error = list.into_vec().await.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert!(server.requests().is_empty());
    // What the server ignores is said.
    let any = ListOptions::default().resource_version(ResourceVersion::Any);
    let list = pods(&client, &any).pages(5);
    assert_eq!(list.option_warnings().len(), 1);
    assert_eq!(list.into_vec().await.unwrap().1.option_warnings.len(), 1);
}
