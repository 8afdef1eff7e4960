//! Strategies: what a reflector requests in order to list and to watch, and what its store holds.

use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Resource, Selection};
use listwatch::path::meta;
use listwatch::{FieldPath, Json, Projection};
use listwatch_cache::{Reflector, Strategy};
use tokio::time::{sleep, timeout};

use crate::script::{
    FIRST, LIST, Scenario, added, check, deleted, idle_watch, list, modified, objects, reflector, requests, scripted,
    watch,
};
use crate::support::config_maps::{error, initial_end};
use crate::support::transport::{Answer, Scripted};

#[tokio::test(start_paused = true)]
async fn lists_and_then_watches() {
    check([Scenario {
        name: "TestReflectorWatchHandler",
        strategy: LIST,
        answers: vec![list("10", "a@1 b@2"), watch([added("c@11"), modified("a@12"), deleted("b@13")]).then_stalls()],
        requests: "list 0, watch 10",
        objects: "a@12 c@11",
        version: "13",
    }])
    .await;
}

#[tokio::test(start_paused = true)]
async fn watches_initial_events_or_lists() {
    check([
        Scenario {
            name: "TestWatchList: interrupted before the bookmark",
            strategy: None,
            answers: vec![watch([added("a@1")]), watch([added("b@2"), initial_end(10), added("c@11")]).then_stalls()],
            requests: "watch list, watch list",
            objects: "b@2 c@11",
            version: "11",
        },
        Scenario {
            name: "TestWatchList: refused, then expired after each list",
            strategy: None,
            answers: vec![
                Answer::status(422),
                list("10", "a@1 b@2"),
                watch([error(410)]),
                list("15", "a@1 b@2"),
                watch([error(410)]),
                list("20", "x@1"),
                watch([modified("a@21")]).then_stalls(),
                list("22", "a@15 c@22"),
            ],
            requests: "watch list, list, watch 10, list 10, watch 15, list one, watch 20, list 20",
            objects: "a@21 c@22",
            version: "21",
        },
        Scenario {
            name: "TestWatchList: refused, then expired after a list and a change",
            strategy: None,
            answers: vec![
                Answer::status(422),
                list("10", "a@1"),
                watch([error(410)]),
                list("15", "a@15"),
                watch([modified("a@16"), error(410)]),
                list("20", "a@16"),
                idle_watch(),
            ],
            requests: "watch list, list, watch 10, list 10, watch 15, list 16, watch 20",
            objects: "a@16",
            version: "20",
        },
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn watches_first_and_lists_meanwhile() {
    check([
        Scenario {
            name: "watch first: an object deleted during the list stays deleted",
            strategy: FIRST,
            answers: vec![
                list("20", "x@1"),
                watch([deleted("a@21"), modified("b@22"), added("c@30")]).then_stalls(),
                list("25", "a@1 b@2 d@24"),
            ],
            requests: "list one, watch 20, list 20",
            objects: "b@22 c@30 d@24",
            version: "30",
        },
        Scenario {
            name: "watch first: versions that do not compare",
            strategy: FIRST,
            answers: vec![list("v20", "x@v1"), list("v21", "a@v1"), watch([modified("a@v22")]).then_stalls()],
            requests: "list one, list, watch v21",
            objects: "a@v22",
            version: "v22",
        },
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn has_no_new_version_before_a_list_is_complete() {
    let script = scripted([
        list("10", "x@1"),
        watch([modified("a@11")]),
        list("10", "a@1"),
        watch([error(410)]),
        watch([error(410)]),
        list("500", "x@1"),
        watch([added("b@501")]).then_stalls(),
    ]);
    let reflector = reflector(script.clone(), FIRST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert!(timeout(Duration::from_secs(60), cache.wait_for_resource_version("12")).await.is_err());
    assert_eq!(requests(&script), "list one, watch 10, list 10, watch 10, watch 11, list one, watch 500, list 500");
    assert_eq!(objects(&cache), "a@11 b@501");
    assert_eq!((cache.status().resource_version.as_deref(), &*cache.resource_version()), (Some("11"), "11"));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn each_request_has_the_options() {
    for strategy in [Some(Strategy::WatchList), LIST, FIRST] {
        let answers = match strategy {
            Some(Strategy::WatchList) => vec![
                watch([added("a@1"), initial_end(10), error(410)]),
                watch([added("a@1"), initial_end(12), added("b@13")]),
            ],
            LIST => vec![list("10", "a@1"), watch([error(410)]), list("12", "a@1"), watch([added("b@13")])],
            _ => vec![list("9", ""), watch([error(410)]), list("10", ""), watch([added("b@13")]), list("12", "a@1")],
        };
        let script = scripted(answers);
        let options = Selection::all().labels("app=web".parse().unwrap());
        let uid = FieldPath::new("metadata.uid", &[1, 5]);
        let reflector = reflector(script.clone(), strategy).namespace("default").selection(options);
        let reflector = reflector.projection(Projection::new().drop(&uid)).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_for_resource_version("13").await.unwrap();
        assert_eq!(objects(&cache), "a@1 b@13", "{strategy:?}");
        for object in cache.snapshot().iter() {
            assert_eq!(object.uid(), "", "{strategy:?}");
        }
        for asked in script.asked() {
            assert_eq!(asked.path(), "/api/v1/namespaces/default/configmaps");
            assert_eq!(asked.parameter("labelSelector"), Some("app%3Dweb"), "{asked:?}");
        }
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn each_cache_has_its_shard_and_every_version_if_the_server_ignores_shards() {
    let changes = [
        added("gamma@11"),
        modified("beta@12"),
        deleted("alpha@13"),
        modified("iota@14"),
        modified("kappa@15"),
        added("zeta@16"),
    ];
    let listed = list("10", "alpha@1 beta@2 iota@3 kappa@4");
    let initial = ["alpha@1", "beta@2", "iota@3", "kappa@4"].map(added).into_iter().chain([initial_end(10)]);
    let initial = watch(initial.chain(changes.clone()));
    let scenarios: [(Strategy, Vec<Answer>, &str); 3] = [
        (Strategy::WatchList, vec![initial, idle_watch()], "watch list, watch 15"),
        (
            Strategy::ListThenWatch,
            vec![listed.clone(), watch(changes.clone()), idle_watch()],
            "list 0, watch 10, watch 15",
        ),
        (
            Strategy::WatchFirst,
            vec![list("10", "alpha@1"), watch(changes), listed, idle_watch()],
            "list one, watch 10, list 10, watch 15",
        ),
    ];
    for (strategy, answers, asked) in scenarios {
        let mut together = Vec::new();
        for index in 0..2 {
            let shard = Shard::new(index, 2).unwrap();
            let script = scripted(answers.clone());
            let options = Selection::all().shard(shard);
            let reflector = reflector(script.clone(), Some(strategy)).selection(options).prepare();
            let cache = reflector.cache();
            let run = tokio::spawn(reflector.run());
            sleep(Duration::from_secs(100)).await;
            assert_eq!(requests(&script), asked, "{shard}: {strategy}");
            assert_eq!(cache.status().resource_version.as_deref(), Some("16"), "{shard}: {strategy}");
            let objects: Vec<_> = objects(&cache).split(' ').map(str::to_owned).collect();
            // The uid is the name.
            assert!(objects.iter().all(|object| shard.contains(object.split('@').next().unwrap())), "{objects:?}");
            assert!((1..5).contains(&objects.len()), "{objects:?}");
            together.extend(objects);
            for path in script.paths() {
                assert!(path.contains("shardSelector="), "{path}");
            }
            run.abort();
        }
        together.sort();
        assert_eq!(together.join(" "), "beta@12 gamma@11 iota@14 kappa@15 zeta@16", "{strategy}");
    }
}

/// The types of k8s-pb name their resources, for lists, watches and reflectors.
#[tokio::test(start_paused = true)]
async fn a_type_names_its_resource() {
    use k8s_pb::api::apps::v1::Deployment;
    use k8s_pb::api::core::v1::Node;
    use listwatch::client::{ListParams, WatchParams};

    let server = Scripted::in_turn([Answer::status(403), Answer::status(403), Answer::status(403)]);
    let client = server.client();
    client.list_of::<Deployment>(&ListParams::default()).namespace("a").into_vec().await.unwrap_err();
    client.watch_of::<Node>(&WatchParams::from_version("7")).open().await.unwrap_err();
    Reflector::<Node>::of(&client).fail_fast().prepare().run().await.unwrap_err();
    let paths = server.paths();
    let collections: Vec<_> = paths.iter().map(|path| path.split('?').next().unwrap()).collect();
    assert_eq!(collections, ["/apis/apps/v1/namespaces/a/deployments", "/api/v1/nodes", "/api/v1/nodes"]);
}

#[tokio::test(start_paused = true)]
async fn projects_json_objects() {
    let list = r#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"10"},"items":[{"metadata":
        {"name":"a","namespace":"n","uid":"u","resourceVersion":"5","managedFields":[{"manager":"m"}]},"spec":{"n":1}}]}"#;
    let script = Scripted::in_turn([Answer::ok(list)]).afterwards(Answer::never());
    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    let reflector = Reflector::<Json<serde_json::Value>>::new(&script.client(), &widgets)
        .strategy(Strategy::ListThenWatch)
        .projection(Projection::new().drop(&meta::MANAGED_FIELDS))
        .prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    let widget = cache.get(("n", "a")).unwrap().decode().unwrap();
    assert_eq!((widget["metadata"].get("managedFields"), widget["spec"]["n"].as_u64()), (None, Some(1)));
    assert_eq!(cache.status().skipped, 0);
    run.abort();
}
