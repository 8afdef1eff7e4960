//! A reflector and a consumer of its changes in one task.

use listwatch::client::Resource;
use listwatch_cache::{Change, Reflector, StorageFormat, Store};

use crate::script::{LIST, added, list, modified, reflector, scripted, watch};
use crate::support::config_maps::error;
use crate::support::transport::Scripted;

#[tokio::test(start_paused = true)]
async fn returns_the_consumers_output_after_the_changes_that_it_read() {
    let answers = [
        list("10", "a@1 b@2"),
        watch([added("c@11"), modified("a@12"), error(410)]),
        list("20", "a@12"),
        watch([modified("a@21")]).then_stalls(),
    ];
    let reflector = reflector(scripted(answers), LIST).store(Store::new(StorageFormat::Encoded)).prepare();
    let mut changes = reflector.cache().subscribe().start();
    let consumer = async {
        let mut seen = Vec::new();
        while let Some(change) = changes.next().await {
            match change {
                Change::Applied { new, .. } => seen.push(format!("{}@{}", new.name(), new.resource_version())),
                Change::Deleted { last, .. } => seen.push(format!("-{}", last.name())),
                _ => {}
            }
            if seen.last().is_some_and(|last| last == "a@21") {
                break;
            }
        }
        seen
    };
    let seen = reflector.run_with(consumer).await.unwrap();
    // Changes of one object that arrive together are coalesced.
    let contains = |change: &str| seen.iter().any(|seen| seen == change);
    assert!(contains("b@2") && contains("-b") && contains("a@21"), "{seen:?}");
}

#[tokio::test]
async fn returns_the_reflectors_error() {
    let server = Scripted::in_turn([]);
    let resource = Resource::CONFIG_MAPS.without_watch();
    let reflector = Reflector::<[u8]>::new(&server.client(), &resource).prepare();
    let error = reflector.run_with(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.to_string(), "parameters: configmaps cannot be watched: the server only lists it");
}
