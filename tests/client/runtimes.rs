//! A request that is polled on another runtime than the one on which it began, or on none, ends in an error.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use listwatch::client::{Client, Error, ErrorKind, ListParams, Resource, TransportErrorKind, WatchParams};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::support::config_maps::{self, added};
use crate::support::transport::{Answer, Scripted};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A request, which returns its error at its end.
type Requesting = Pin<Box<dyn Future<Output = Option<Error>>>>;

fn error<T: Debug>(result: Result<T, Error>) -> Option<Error> {
    result.err()
}

/// Requests that wait for the server, or for their next attempt.
fn requests() -> Vec<(&'static str, Requesting)> {
    let begins = config_maps::list("10", (0..3).map(|n| (format!("cm-{n}"), 5)));
    let answers = || {
        vec![
            ("the head", Answer::never()),
            ("the head, after a time", Answer::never().after(Duration::from_secs(3600))),
            ("the next attempt", Answer::status(503).header("retry-after", "20")),
            ("the body", Answer::pieces([begins[..begins.len() - 9].to_vec()]).then_stalls()),
            ("an event", Answer::pieces([added("a", 8)]).then_stalls()),
            ("the next watch", Answer::default()),
        ]
    };
    let mut requests: Vec<(_, Requesting)> = Vec::new();
    for (case, answer) in answers() {
        let client = || Scripted::always(answer.clone()).client();
        let final_error = |result: Option<Result<String, Error>>| result.and_then(Result::err);
        if case != "an event" && case != "the next watch" {
            let listing = client().list_with(&Resource::CONFIG_MAPS, &ListParams::default(), name);
            requests.push((case, Box::pin(listing.collect::<Vec<_>>().map(move |mut all| final_error(all.pop())))));
            let client = client();
            requests.push((
                case,
                Box::pin(async move { error(client.get::<[u8]>(&Resource::PODS, Some("a"), "b").await.map(drop)) }),
            ));
        }
        if case != "the body" {
            let watch = client().watch_with(&Resource::CONFIG_MAPS, &WatchParams::from_version("7"), name);
            requests.push((case, Box::pin(watch.collect::<Vec<_>>().map(|mut all| all.pop().and_then(Result::err)))));
        }
        if case == "an event" {
            let watch = client().watch_with(&Resource::CONFIG_MAPS, &WatchParams::from_version("7"), name);
            requests.push((
                "an event of one connection",
                Box::pin(async move {
                    match watch.open().await {
                        Ok(events) => events.collect::<Vec<_>>().await.pop().and_then(Result::err),
                        Err(error) => Some(error),
                    }
                }),
            ));
        }
    }
    let client: Client = Scripted::always(Answer::never()).client();
    requests.push(("discovery", Box::pin(async move { error(client.resolve("widgets").await) })));
    requests
}

fn name(item: listwatch::ItemRef<'_>) -> Result<String, listwatch::ItemError> {
    Ok(item.meta()?.name().into_owned())
}

fn is_of_runtime(error: &Error, text: &str) -> bool {
    let ErrorKind::Transport(transport) = error.kind() else { return false };
    transport.kind() == TransportErrorKind::Setup && error.to_string().contains(text)
}

#[test]
fn a_request_ends_in_an_error_after_its_runtime() {
    for first_ends in [true, false] {
        for (case, mut request) in requests() {
            let first = runtime();
            let waits = async { timeout(Duration::from_millis(10), &mut request).await.is_err() };
            assert!(first.block_on(waits), "{case}");
            let first = (!first_ends).then_some(first);
            let error = runtime().block_on(async { timeout(Duration::from_secs(10), request).await });
            let error = error.expect("it ends").expect("it ends in an error");
            assert!(is_of_runtime(&error, "polled on another tokio runtime"), "{case}: {error}");
            drop(first);
        }
    }
}

#[test]
fn a_request_ends_in_an_error_outside_of_a_runtime() {
    for has_begun in [false, true] {
        for (case, mut request) in requests() {
            let first = has_begun.then(runtime);
            if let Some(first) = &first {
                assert!(first.block_on(async { timeout(Duration::from_millis(10), &mut request).await.is_err() }));
            }
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(Some(error)) = request.as_mut().poll(&mut context) else { panic!("{case}: no error") };
            assert!(is_of_runtime(&error, "polled outside of a tokio runtime"), "{case}: {error}");
        }
    }
}
