//! Watchers with a projection.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::iter::successors;
use std::pin::pin;

use futures::{Stream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Object};
#[expect(deprecated, reason = "this crate's function replaces it")]
use kube::runtime::metadata_watcher as theirs_of_metadata;
use kube::runtime::watcher as theirs;
use kube::{Api, Client, Resource};
use listwatch::path::meta;
use listwatch::{FieldPath, Projection};
use listwatch_kube::runtime::watcher::{self, Config, Event, InitialListStrategy};
use listwatch_kube::runtime::{Watcher, metadata_watcher as ours_of_metadata, watcher as ours};
use listwatch_testserver::{Answer, Body, Server};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::situations::{Situation, situations};
use crate::support::*;

/// Checks that the watchers send the same requests, and report the same events and errors, except for the fields that
/// each projection drops.
async fn alike_without_fields<K, S>(
    name: &str,
    projections: &[(Projection, &[&[&str]])],
    answers: &[Answer],
    theirs: impl FnOnce(Client) -> S,
    ours: impl Fn(Client) -> Watcher<K>,
) where
    K: Resource + DeserializeOwned + Serialize + Send + 'static,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let (events, objects, requests) = seen_whole(answers, theirs).await;
    for (projection, dropped) in projections {
        let mut expected = objects.clone();
        for object in &mut expected {
            for path in *dropped {
                remove(object, path);
            }
        }
        let description = format!("{name}, {projection}");
        let of_this = seen_whole(answers, |client| ours(client).projection(projection.clone())).await;
        assert_eq!(of_this, (events.clone(), expected, requests.clone()), "{description}");
    }
}

#[tokio::test]
async fn drops_fields_and_reports_the_same_events_in_every_situation() {
    for Situation { name, config, answers, .. } in situations() {
        alike_without_fields(
            name,
            &projections(),
            &answers,
            |client| theirs(everywhere(client), config.clone()),
            |client| ours(everywhere(client), config.clone()),
        )
        .await;
    }
}

#[tokio::test]
async fn drops_fields_of_metadata_dynamic_objects_and_custom_resources() {
    #[derive(Clone, Debug, Deserialize, Serialize)]
    struct Spec {
        parts: Vec<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        replicas: Option<u32>,
    }
    type Widget = Object<Spec, Value>;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let projections = &projections()[1..4];
    // An object of a list that cannot be decoded, which differs by type, is in the test of ConfigMaps.
    let situations_of = |objects| {
        TYPE.set(objects);
        situations().into_iter().filter(|situation| !situation.expected.contains("InitialListFailed Init InitApply(b)"))
    };
    for Situation { name, config, answers, .. } in situations_of(METADATA) {
        alike_without_fields(
            &format!("metadata, {name}"),
            projections,
            &answers,
            |client| {
                #[expect(deprecated, reason = "this crate's function replaces it")]
                theirs_of_metadata(everywhere(client), config.clone())
            },
            |client| ours_of_metadata(everywhere(client), config.clone()),
        )
        .await;
    }
    for Situation { name, config, answers, .. } in situations_of(WIDGET) {
        let api = |client| Api::<DynamicObject>::all_with(client, &resource);
        alike_without_fields(
            &format!("dynamic, {name}"),
            projections,
            &answers,
            |client| theirs(api(client), config.clone()),
            |client| ours(api(client), config.clone()),
        )
        .await;
        let api = |client| Api::<Widget>::all_with(client, &resource);
        alike_without_fields(
            &format!("custom, {name}"),
            projections,
            &answers,
            |client| theirs(api(client), config.clone()),
            |client| ours(api(client), config.clone()),
        )
        .await;
    }
}

/// Serde would refuse these managed fields.
#[tokio::test]
async fn dropped_fields_never_reach_serde() {
    async fn check<K>(answers: &[Answer], watcher: impl Fn(Client) -> Watcher<K>)
    where
        K: Resource + DeserializeOwned + Serialize + Send + 'static,
    {
        let drop = Projection::new().drop(&meta::MANAGED_FIELDS);
        let (events, _) = seen(answers, |client| watcher(client).projection(drop)).await;
        assert_eq!(events.join(" "), "Init InitApply(a) InitDone Apply(b) Delete(a) Apply(last)");
        let server = Server::start(Answer::in_turn(answers.iter().cloned())).await.unwrap();
        let errors = watcher(client(&server)).filter_map(async |event| event.err());
        let error = pin!(errors).next().await.unwrap();
        assert!(written(&error).ends_with("undecodable"), "{error:?}");
    }
    let object = |name, version| {
        let mut object = config_map(name, version);
        object["metadata"]["managedFields"] = json!({"time": [5], "fieldsV1": "no list"});
        object
    };
    let stalled = |body: String| {
        let length = body.len() as u64;
        Answer::ok(Body::replay(body + " ").stall_at(length)).content_type("application/json")
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    for strategy in [Config::default(), Config::default().streaming_lists()] {
        let config = || strategy.clone();
        let answers = |objects| {
            TYPE.set(objects);
            let changes = event("ADDED", object("b", 3)) + &event("DELETED", object("a", 4)) + &added(LAST, 1000);
            match strategy.initial_list_strategy {
                InitialListStrategy::ListWatch => vec![list("2", "", &[object("a", 1)]), stalled(changes)],
                InitialListStrategy::StreamingList => {
                    vec![stalled(event("ADDED", object("a", 1)) + &initial_end(2) + &changes)]
                }
            }
        };
        check(&answers(CONFIG_MAP), |client| ours(everywhere(client), config())).await;
        check(&answers(METADATA), |client| ours_of_metadata(everywhere(client), config())).await;
        check(&answers(WIDGET), |client| ours(Api::<DynamicObject>::all_with(client, &resource), config())).await;
    }
}

#[tokio::test]
async fn refuses_projections_that_drop_what_stores_need() {
    let path = |names| FieldPath::new(names, &[]);
    for (projection, reason) in [
        (Projection::new().drop(&path("metadata.name")), "drops metadata.name,"),
        (Projection::new().drop(&path("metadata.namespace")), "drops metadata.namespace,"),
        (Projection::new().drop(&path("metadata.uid")), "drops metadata.uid,"),
        (Projection::new().drop(&path("metadata.resourceVersion")), "drops metadata.resourceVersion,"),
        (Projection::new().drop(&path("metadata")), "drops metadata.name,"),
        (Projection::new().keep(&path("data")), "drops metadata.name,"),
        (Projection::new().drop(&FieldPath::new("", &[1, 17])), "JSON"),
    ] {
        for config in [Config::default(), Config::default().streaming_lists()] {
            let server = Server::start(Answer::always(last())).await.unwrap();
            let events = ours(everywhere(client(&server)), config).projection(projection.clone());
            let errors: Vec<_> = events.filter_map(async |event| event.err()).take(2).collect().await;
            for error in errors {
                assert!(written(&error).ends_with("not sent"), "{error:?}");
                let source = successors(Some(&error as &dyn StdError), |&error| error.source()).last().unwrap();
                assert!(source.to_string().contains(reason), "{source}, not {reason}");
            }
            assert!(server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn a_new_projection_starts_over() {
    let answers = [list("2", "", &[config_map("a", 1)]), list("2", "", &[config_map("a", 1)]), last()];
    let server = Server::start(Answer::in_turn(answers)).await.unwrap();
    let mut events = ours(everywhere(client(&server)), Config::default());
    for has_fields in [true, false] {
        assert!(matches!(events.next().await, Some(Ok(Event::Init))));
        let Some(Ok(Event::InitApply(object))) = events.next().await else { panic!("not an object") };
        assert_eq!(object.metadata.managed_fields.is_some(), has_fields);
        events = events.projection(Projection::new().drop(&meta::MANAGED_FIELDS));
    }
}
