//! The spans and events of a reflector.

use std::time::Duration;

use tokio::time::sleep;

use crate::script::{LIST, idle_watch, list, modified, reflector, scripted, watch};
use crate::support::config_maps::error;
use crate::support::log::subscribe;
use crate::support::transport::Answer;

#[tokio::test(start_paused = true)]
async fn each_attempt_is_a_span() {
    let (log, _guard) = subscribe();
    let answers = [Answer::status(503), list("10", "a@1"), watch([modified("a@11"), error(410)]), list("12", "a@11")];
    let reflector = reflector(scripted(answers.into_iter().chain([idle_watch()])), LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("12").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    run.abort();
    drop(run.await);
    let log = log.take();
    let spans: Vec<_> = log.lines().filter(|line| line.contains(": listwatch_cache::reflector: close")).collect();
    for (attempt, version, has_error) in [(1, None, true), (2, Some("10"), true), (3, Some("12"), false)] {
        let begin = format!(" listwatch.reflector{{resource=configmaps attempt={attempt} ");
        let span = spans.iter().find(|line| line.contains(&begin)).unwrap_or_else(|| panic!("{attempt}: {log}"));
        let found = version.is_none_or(|version| span.contains(&format!("resource_version=\"{version}\"")));
        assert!(found && span.contains("error=") == has_error, "{span}");
    }
}
