//! Pages, namespaces and shards: no item is repeated or missing, and snapshots are not mixed without notice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use listwatch::client::{Client, ListParams, Resource, ResourceVersion, Selection};
use listwatch::{Encoding, ItemError, ItemRef};
use listwatch::{LabelSelector, Shard};
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

use crate::support::fixture;
use crate::support::server::{Pods, client, paged, recorded, serve_by, serve_in_turn};

fn expired() -> Answer {
    recorded("error-410-continue.pb").status(410)
}

fn pods(client: &Client, params: &ListParams) -> Pods {
    client.list::<[u8]>(&Resource::PODS, params)
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
    let paged = ListParams::default().page_size(50);
    let exact = paged.clone().resource_version(ResourceVersion::Exact("7".into()));
    for http2 in [false, true] {
        for (params, version) in [(paged.clone(), ""), (exact.clone(), "&resourceVersion=7&resourceVersionMatch=Exact")]
        {
            let server = serve_in_turn(PAGES.map(recorded)).await;
            let list = pods(&client(&server, http2), &params);
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
            // The token has the version, so no version is sent with it.
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
async fn lists_single_pages() {
    let params = ListParams::default().page_size(50).resource_version(ResourceVersion::Exact("7".into()));
    for http2 in [false, true] {
        let server = serve_in_turn(PAGES.map(recorded)).await;
        let client = client(&server, http2);
        let (mut token, mut sizes) = (None, Vec::new());
        loop {
            let (items, summary) = pods(&client, &params).single_page(token).into_vec().await.unwrap();
            assert_eq!(summary.pages, 1);
            sizes.push(items.len());
            token = Some(summary.list_meta.continue_token);
            if token.as_deref() == Some("") {
                break;
            }
        }
        assert_eq!((sizes, server.requests().len()), (vec![50, 50, 20], 3));
        // The token has the version.
        let paths = paths(&server);
        assert!(paths[0].contains("limit=50&resourceVersion=7") && !paths[0].contains("continue="));
        assert!(paths[1..].iter().all(|path| path.contains("limit=50&continue=") && !path.contains("resourceVersion")));
    }
}

/// Each page has its own tries, and an error in a page follows exactly the items of the pages before it.
#[tokio::test]
async fn retries_each_page() {
    let busy = || Answer::ok(Body::replay("")).status(503);
    for http2 in [false, true] {
        let server =
            serve_in_turn([recorded(PAGES[0]), busy(), busy(), recorded(PAGES[1]), busy(), recorded(PAGES[2])]).await;
        let (_, summary) = paged(&client(&server, http2)).into_vec().await.unwrap();
        assert_eq!((summary.pages, summary.attempts), (3, 6));

        let server = serve_in_turn([recorded(PAGES[0]), busy()]).await;
        let error = paged(&client(&server, http2)).into_vec().await.unwrap_err();
        assert_eq!((error.code(), error.items(), server.requests().len()), (Some(503), 50, 6));
    }
}

#[tokio::test]
async fn an_expired_token_ends_the_list() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), expired()]).await;
        let mut seen = 0;
        let mut items = paged(&client(&server, http2));
        let error = loop {
            match items.next().await.unwrap() {
                Ok(_) => seen += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_expired(), "{error}");
        assert_eq!((error.items(), seen, server.requests().len()), (50, 50, 2));
    }
}

#[tokio::test]
async fn an_expired_token_restarts_the_list() {
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
        // The restart is reported before any item of the second snapshot.
        let log = Arc::new(Mutex::new(Vec::new()));
        let (items, restarts) = (Arc::clone(&log), Arc::clone(&log));
        let params = ListParams::default().page_size(50);
        let list = client.list_with(&Resource::PODS, &params, move |_| {
            items.lock().unwrap().push(None);
            Ok::<_, ItemError>(())
        });
        let on_restart = move |restart| restarts.lock().unwrap().push(Some(restart));
        let mut items = list.namespace("team-1").on_restart(on_restart);
        while let Some(item) = items.next().await {
            item.unwrap();
        }
        let summary = items.summary().unwrap();
        assert_eq!((summary.restarts, summary.pages, summary.attempts, summary.consistent), (1, 3, 6, true));
        assert_eq!(summary.namespaces.len(), 1);
        let log = log.lock().unwrap().clone();
        assert_eq!(log.iter().position(Option::is_some), Some(100));
        let restart = log[100].clone().unwrap();
        assert_eq!((restart.items, restart.namespace.as_deref()), (100, Some("team-1")));
        assert_eq!(log.len() as u64, 101 + summary.items);
        assert!(!paths(&server)[3].contains("continue"));
        assert_eq!(client.metrics().restarts, 1);

        // Collected items of the first snapshot are dropped.
        let expired_once = [PAGES[0], PAGES[1]].map(recorded).into_iter().chain([expired()]).chain(PAGES.map(recorded));
        let server = serve_in_turn(expired_once).await;
        let (items, summary) = paged(&self::client(&server, http2)).into_vec().await.unwrap();
        assert_eq!((items.len() as u64, summary.restarts), (summary.items, 1));

        // The number of restarts is limited.
        let flip = |_: &_, n: usize| if n.is_multiple_of(2) { recorded(PAGES[0]) } else { expired() };
        let server = serve_by(flip).await;
        assert!(paged(&self::client(&server, http2)).into_vec().await.unwrap_err().is_expired());
        assert_eq!(server.requests().len(), 8);

        // An expired version on the first page does not restart the list.
        let server = serve_in_turn([recorded("error-410-exact.pb").status(410)]).await;
        let mut items = paged(&self::client(&server, http2)).on_restart(|_| panic!("no restart"));
        assert!(items.next().await.unwrap().unwrap_err().is_expired());
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn continues_inconsistently_after_an_expired_token() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), expired(), recorded(PAGES[1]), recorded(PAGES[2])]).await;
        let list = paged(&client(&server, http2)).allow_inconsistent();
        let (items, summary) = list.into_vec().await.unwrap();
        assert!(!summary.consistent);
        assert_eq!((summary.pages, summary.restarts, summary.items), (3, 0, items.len() as u64));
        // The token of the 410, whose version is -1.
        let path = &paths(&server)[2];
        assert!(path.contains("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEs"), "{path}");

        // The offered token expires too, or the server offers none.
        for answers in [vec![recorded(PAGES[0]), expired()], vec![recorded("error-410-exact.pb").status(410)]] {
            let server = serve_in_turn(answers).await;
            let items: Vec<_> = paged(&client(&server, http2)).allow_inconsistent().collect().await;
            assert!(items.last().unwrap().as_ref().unwrap_err().is_expired());
            assert!(server.requests().len() <= 3);
        }
    }
}

#[tokio::test]
async fn lists_several_namespaces() {
    for http2 in [false, true] {
        let server = serve_in_turn([recorded(PAGES[0]), recorded(PAGES[2]), recorded("pods-empty.pb")]).await;
        let list = paged(&client(&server, http2)).namespaces(["a", "b", "a"]);
        let (items, summary) = list.into_vec().await.unwrap();
        assert_eq!(items.len() as u64, summary.items);
        let namespaces: Vec<_> = summary.namespaces.iter().map(|(namespace, _)| &**namespace).collect();
        assert_eq!(namespaces, ["a", "b"]);
        let paths = paths(&server);
        assert_eq!(paths.len(), 3);
        assert!(paths[1].starts_with("/api/v1/namespaces/a/pods?limit=50&continue="));
        assert_eq!(paths[2], "/api/v1/namespaces/b/pods?limit=50");
        // An empty set of namespaces lists nothing, and not all namespaces.
        let (items, summary) =
            pods(&client(&server, http2), &ListParams::default()).namespaces([""; 0]).into_vec().await.unwrap();
        assert_eq!((items.len(), summary.attempts, server.requests().len()), (0, 0, 3));
    }
}

/// If the server does not know shards, the client omits the items of other shards, and counts them towards limits.
#[tokio::test]
async fn lists_one_shard() {
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
        let list = |shard| pods(&client, &ListParams::new(Selection::all().shard(shard))).into_vec();
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
            let params = ListParams::new(Selection::all().shard(halves[0])).page_size(50);
            let list = pods(&all, &params).limits(limits);
            let error = list.into_vec().await.unwrap_err();
            assert!(
                error.to_string().starts_with("the list has at least 120 items, over the limit of 119"),
                "{bytes}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn lists_metadata_only() {
    let options = ListParams::new(Selection::all().metadata_only());
    for http2 in [false, true] {
        let server =
            serve_in_turn([recorded("pods-metadata.pb"), recorded("widgets-metadata.pb"), recorded("pods.pb")]).await;
        let client = client(&server, http2);
        let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
        assert!(!pods(&client, &options).single_page(None).into_vec().await.unwrap().0.is_empty());
        assert!(!client.list::<[u8]>(&widgets, &options).into_vec().await.unwrap().0.is_empty());
        let error = pods(&client, &options).into_vec().await.unwrap_err();
        let expected = "the server sent PodList of \"v1\" instead of PartialObjectMetadataList of \"meta.k8s.io/v1\"";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn invalid_parameters_are_not_sent() {
    let server = serve_in_turn([Answer::ok(Body::replay(recorded_pods()))]).await;
    let client = client(&server, false);
    let params = ListParams::default();
    let exact = |version: &str| params.clone().resource_version(ResourceVersion::Exact(version.into()));
    let pair = Selection::all().labels(LabelSelector::new().equal("app", "web,tier=front"));
    for (list, expected) in [
        (pods(&client, &params.clone().page_size(0)), "page size 0"),
        (pods(&client, &exact("0")), "exact version 0"),
        (pods(&client, &exact("")), "invalid resource version \"\""),
        (pods(&client, &params.clone().timeout(Duration::from_millis(1500))), "timeout 1.5s"),
        (
            pods(&client, &ListParams::new(pair)),
            "label selector: the server would parse \"app=web,tier=front\" as another",
        ),
        (pods(&client, &params).single_page(Some(String::new())), "an empty continue token"),
        (pods(&client, &params).namespace("Team"), "namespace \"Team\" must be"),
        (pods(&client, &params).namespaces(["ok", ""]), "namespace \"\" must be"),
        (client.list::<[u8]>(&Resource::NODES, &params).namespace("a"), "nodes is not namespaced"),
    ] {
        let error = list.into_vec().await.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert!(server.requests().is_empty());
}
