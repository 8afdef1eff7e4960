//! Both watchers in every situation.

use kube::runtime::watcher as theirs;
use listwatch_kube::runtime::watcher as ours;
use listwatch_kube::runtime::watcher::Config;
use listwatch_testserver::{Answer, Body};
use serde_json::json;

use crate::support::*;

/// A configuration, the responses of the server, and the events and errors that both watchers report, without the text
/// of errors.
pub struct Situation {
    pub name: &'static str,
    pub config: Config,
    pub answers: Vec<Answer>,
    pub expected: &'static str,
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
pub fn situations() -> Vec<Situation> {
    let situation = |name, config: &Config, answers: Vec<Answer>, expected| Situation {
        name,
        config: config.clone(),
        answers,
        expected,
    };
    let lists = Config::default();
    let streams = Config::default().streaming_lists();
    let (a, b) = (|| config_map("a", 1), || config_map("b", 2));
    let of_a_and_b = || list("2", "", &[a(), b()]);
    let gone = || event("ERROR", status(410, "Expired"));
    let torn = |body: String| Answer::ok(Body::replay(body.clone() + " ").reset_at(body.len() as u64));
    let ended = |body: String| Answer::ok(Body::replay(body.clone() + " ").cut_at(body.len() as u64));
    vec![
        situation(
            "a list and a watch",
            &lists,
            vec![
                of_a_and_b(),
                watch(&[
                    event("MODIFIED", config_map("a", 3)),
                    event("DELETED", config_map("b", 4)),
                    added("c", 5),
                    bookmark(9),
                ]),
                watch(&[]),
                watch(&[added("d", 10)]),
                last(),
            ],
            "Init InitApply(a) InitApply(b) InitDone Apply(a) Delete(b) Apply(c) Apply(d) Apply(last)",
        ),
        situation("an empty list", &lists, vec![list("7", "", &[]), last()], "Init InitDone Apply(last)"),
        situation(
            "pages",
            &lists.clone().page_size(1),
            vec![list("2", "x y", &[a()]), list("2", "z", &[]), list("2", "", &[b()]), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "no page size",
            &Config { page_size: None, ..lists.clone() },
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "any version",
            &Config { page_size: None, ..lists.clone().any_semantic() },
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "selectors, a timeout and no bookmarks",
            &lists.clone().labels("app=web,tier in (a,b)").fields("metadata.name!=x").timeout(77).disable_bookmarks(),
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a page that has expired",
            &lists.clone().page_size(1),
            vec![list("2", "x", &[a()]), refused(410, "Expired"), of_a_and_b(), last()],
            "Init InitApply(a) InitialListFailed Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a list that is refused",
            &lists,
            vec![refused(403, "Forbidden"), refused(429, "TooManyRequests"), list("2", "", &[a()]), last()],
            "Init InitialListFailed Init InitialListFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "a response that is not a list",
            &lists,
            vec![Answer::ok(Body::replay("<html>")).content_type("text/html"), list("2", "", &[a()]), last()],
            "Init InitialListFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "an object of a list that cannot be decoded",
            &lists,
            vec![list("2", "", &[undecodable("a", 1), b()]), list("2", "", &[b()]), last()],
            "Init InitialListFailed Init InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a list without a version",
            &lists,
            vec![list("", "", &[]), list("2", "", &[]), last()],
            "Init NoResourceVersion Init InitDone Apply(last)",
        ),
        situation(
            "a watch that is refused",
            &lists,
            vec![of_a_and_b(), refused(500, "InternalError"), refused(429, "TooManyRequests"), last()],
            "Init InitApply(a) InitApply(b) InitDone WatchStartFailed WatchStartFailed Apply(last)",
        ),
        situation(
            "a version that has expired",
            &lists,
            vec![of_a_and_b(), watch(&[added("c", 3), gone()]), list("9", "", &[b()]), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(c) WatchError Init InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "another error of a watch",
            &lists,
            vec![list("2", "", &[]), watch(&[added("c", 3), event("ERROR", status(500, "InternalError"))]), last()],
            "Init InitDone Apply(c) WatchError Apply(last)",
        ),
        situation(
            "an object of a watch that cannot be decoded",
            &lists,
            vec![
                list("2", "", &[]),
                watch(&[event("MODIFIED", undecodable("c", 3)), added("d", 4)]),
                watch(&[event("DELETED", undecodable("d", 5))]),
                last(),
            ],
            "Init InitDone WatchFailed Apply(d) WatchFailed Apply(last)",
        ),
        situation(
            "an object without a version",
            &lists,
            vec![
                list("2", "", &[]),
                watch(&[added("c", 3), event("ADDED", json!({"metadata": {"name": "d"}, "spec": {"parts": []}}))]),
                list("4", "", &[a()]),
                last(),
            ],
            "Init InitDone Apply(c) NoResourceVersion Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "watches that are interrupted between frames and in a frame",
            &lists,
            vec![
                list("2", "", &[]),
                torn(added("c", 3)),
                ended(added("d", 4)),
                torn(added("e", 5) + "{\"type\":"),
                ended(added("f", 6) + "{\"type\":"),
                last(),
            ],
            "Init InitDone Apply(c) Apply(d) Apply(e) Apply(f) Apply(last)",
        ),
        situation(
            "a streamed list",
            &streams,
            vec![
                watch(&[added("a", 1), bookmark(1), added("b", 2), initial_end(2), added("c", 3)]),
                watch(&[event("DELETED", config_map("a", 4))]),
                last(),
            ],
            "Init InitApply(a) InitApply(b) InitDone Apply(c) Delete(a) Apply(last)",
        ),
        situation(
            "an empty streamed list",
            &streams,
            vec![watch(&[initial_end(2)]), last()],
            "Init InitDone Apply(last)",
        ),
        situation(
            "a streamed list that is refused",
            &streams,
            vec![refused(422, "Invalid"), watch(&[added("a", 1), initial_end(2)]), last()],
            "WatchStartFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "a streamed list that ends too early",
            &streams,
            vec![
                watch(&[added("a", 1)]),
                torn(added("a", 1)),
                watch(&[added("a", 1), gone()]),
                watch(&[added("a", 1), event("ERROR", status(500, "InternalError"))]),
                watch(&[added("a", 1), event("ADDED", undecodable("b", 2)), initial_end(2)]),
                last(),
            ],
            "Init InitApply(a) Init InitApply(a) Init InitApply(a) WatchError Init InitApply(a) WatchError \
             Init InitApply(a) WatchFailed InitDone Apply(last)",
        ),
        situation(
            "another streamed list after the version has expired",
            &streams,
            vec![watch(&[initial_end(2)]), watch(&[gone()]), watch(&[added("a", 1), initial_end(2)]), last()],
            "Init InitDone WatchError Init InitApply(a) InitDone Apply(last)",
        ),
    ]
}

#[tokio::test]
async fn sends_the_requests_and_reports_the_events_of_kubes_watcher() {
    for Situation { name, config, answers, expected } in situations() {
        let of_kube = seen(&answers, |client| theirs(everywhere(client), config.clone())).await;
        let of_this = seen(&answers, |client| ours(everywhere(client), config.clone())).await;
        let short: Vec<_> = of_kube.0.iter().map(|event| event.split(':').next().unwrap()).collect();
        assert_eq!(short.join(" "), expected, "kube, {name}");
        assert_eq!(of_this, of_kube, "{name}");
    }
}
