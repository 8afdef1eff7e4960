//! Runs one list after another, and checks how each ends.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::TryStreamExt as _;
use listwatch::client::{Client, Config, Error, ErrorKind, ListSummary, Transport, TransportError, TransportErrorKind};
use listwatch_e2e::{Result, over_kube};

use crate::query::{Known, Query};
use crate::trouble::{Fault, Trouble, Troubled};

/// The deadline of each list without `Fault::Deadline`.
const DEADLINE: Duration = Duration::from_secs(60);
/// How late a deadline may be on a busy machine.
const GRACE: Duration = Duration::from_secs(2);
/// A stalled response fails after this time. On a busy machine, the server itself sent nothing for 6 s after a start.
const READ_IDLE: Duration = Duration::from_secs(15);
/// The share of the lists that meet a fault: a tenth of all lists, because the lists right after a restart meet none.
const BROKEN: f64 = 0.125;
/// The share of the lists that are dropped before their end.
const LEFT: f64 = 0.08;

/// The state that all workers share.
pub struct World {
    pub queries: Vec<(Query, Known)>,
    pub server: SocketAddr,
    pub ca: Vec<u8>,
    pub kube: kube::Config,
    pub outage: Mutex<Outage>,
    /// Makes the workers run their last lists.
    pub stop: AtomicBool,
    pub tally: Mutex<Tally>,
}

/// When the server is down: the lists that run then may fail.
#[derive(Default)]
pub struct Outage {
    pub down: bool,
    pub up_since: Option<Instant>,
}

impl Outage {
    fn meets(&self, started: Instant) -> bool {
        self.down || self.up_since.is_some_and(|up| started <= up)
    }
}

#[derive(Default)]
pub struct Tally {
    pub lists: u64,
    pub complete: u64,
    pub left: u64,
    /// Complete despite a fault: the client retried, or the fault came after the last byte of the list.
    pub recovered: u64,
    pub items: u64,
    pub wire_bytes: u64,
    /// Requests in addition to one for each page.
    pub retries: u64,
    /// The armed faults, whether or not the list reached them.
    pub faults: BTreeMap<String, u64>,
    pub broken: BTreeMap<String, u64>,
    pub by_restart: BTreeMap<String, u64>,
    /// The failures of the soak.
    pub wrong: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lists, complete, left, recovered, wire_bytes, broken, by_restart, wrong, .. } = self;
        let [broken, by_restart] = [broken, by_restart].map(|counts| counts.values().sum::<u64>());
        write!(f, "{lists} lists, {} MB: {complete} complete ({recovered} despite a fault), ", wire_bytes >> 20)?;
        write!(f, "{left} dropped, {broken} failed by faults, {by_restart} by restarts, {} wrong", wrong.len())
    }
}

pub struct Worker {
    pub rng: Rng,
    pub trouble: Arc<Trouble>,
    pub proxy: SocketAddr,
    pub world: Arc<World>,
}

/// A client of the worker, and its route to the server.
struct Route {
    name: &'static str,
    client: Client,
    is_proxied: bool,
}

impl Worker {
    /// Runs lists until the workers are stopped; then each route to the server must work again.
    pub async fn run(mut self) -> Self {
        let routes = self.routes().expect("clients");
        let world = Arc::clone(&self.world);
        while !world.stop.load(Ordering::Relaxed) {
            let route = &routes[self.rng.usize(..routes.len())];
            let (query, known) = &world.queries[self.rng.usize(..world.queries.len())];
            let fault = (self.rng.f64() < BROKEN).then(|| self.fault(route));
            self.list(route, query, known, fault).await;
        }
        for route in &routes {
            let (query, known) = &world.queries[self.rng.usize(..world.queries.len())];
            self.list(route, query, known, None).await;
        }
        self
    }

    fn routes(&self) -> Result<[Route; 3]> {
        let proxied = format!("https://{}", self.proxy);
        let builder = |url: String| Config::new(url).bearer_token("admin").ca_pem(self.world.ca.clone());
        let mut config = self.world.kube.clone();
        config.cluster_url = proxied.parse()?;
        let direct = builder(format!("https://{}", self.world.server)).build()?;
        Ok([
            self.route("proxied", builder(proxied).build()?, true),
            self.route("kube", over_kube(config)?, true),
            self.route("direct", direct, false),
        ])
    }

    fn route(&self, name: &'static str, inner: impl Transport, is_proxied: bool) -> Route {
        let client = Client::new(Troubled { inner, trouble: Arc::clone(&self.trouble) });
        Route { name, client: client.read_idle_timeout(READ_IDLE), is_proxied }
    }

    fn fault(&mut self, route: &Route) -> Fault {
        loop {
            let fault = Fault::ALL[self.rng.usize(..Fault::ALL.len())];
            if route.is_proxied || !fault.is_on_the_way() {
                return fault;
            }
        }
    }

    async fn list(&mut self, route: &Route, query: &Query, known: &Known, fault: Option<Fault>) {
        let mut deadline = DEADLINE;
        match fault {
            None => {}
            Some(Fault::Deadline) => deadline = Duration::from_millis(self.rng.u64(1..300)),
            Some(fault) => self.trouble.arm(fault, self.rng.u64(..known.wire_bytes)),
        }
        let leave_after = (self.rng.f64() < LEFT && known.len() > 0).then(|| self.rng.u64(..known.len()));
        let keep = self.rng.bool();

        let started = Instant::now();
        let list = (query.list)(&route.client).deadline(deadline);
        let mut items = list;
        let progress = items.progress();
        let (mut kept, mut check) = (Vec::new(), known.check());
        let (mut delivered, mut exact) = (0, Ok(()));
        let end = loop {
            match items.try_next().await {
                Ok(Some(_)) if leave_after == Some(delivered) => break End::Left,
                Ok(Some(item)) => {
                    delivered += 1;
                    if keep {
                        kept.push(item);
                    } else {
                        exact = exact.and_then(|()| check.item(&item));
                    }
                }
                Ok(None) => break End::Complete(Box::new(items.summary().cloned().unwrap_or_default())),
                Err(error) => break End::Error(error),
            }
        };
        let is_silent = matches!(end, End::Left)
            || matches!(items.try_next().await, Ok(None))
                && items.summary().is_some() == matches!(end, End::Complete(_));
        drop(items);
        let elapsed = started.elapsed();
        let happened = self.trouble.disarm();
        for item in &kept {
            exact = exact.and_then(|()| check.item(item));
        }
        let ended = Ended { end, elapsed, deadline, delivered, exact, whole: check.end(), is_silent, fault, happened };
        let mut tally = self.world.tally.lock().unwrap();
        tally.wire_bytes += progress.wire_bytes();
        let is_outage = self.world.outage.lock().unwrap().meets(started);
        for what in ended.judge(query, is_outage, &mut tally) {
            let outcome = if happened { "happened" } else { "did not happen" };
            let fault = fault.map(|fault| format!(" ({fault:?} {outcome})")).unwrap_or_default();
            let what = format!("{} over {}{fault}, {delivered} items, {elapsed:?}: {what}", query.name, route.name);
            println!("WRONG: {what}");
            tally.wrong.push(what);
        }
    }
}

/// How a list ended, and the results of its checks.
struct Ended {
    end: End,
    elapsed: Duration,
    deadline: Duration,
    delivered: u64,
    /// Whether each item equals the expected item.
    exact: std::result::Result<(), String>,
    /// Whether all items were delivered.
    whole: std::result::Result<(), String>,
    /// Whether the stream yielded nothing after its end.
    is_silent: bool,
    fault: Option<Fault>,
    happened: bool,
}

impl Ended {
    /// Counts the list, and returns what is wrong with it.
    fn judge(self, query: &Query, is_outage: bool, tally: &mut Tally) -> Vec<String> {
        let Self { end, elapsed, deadline, delivered, exact, whole, is_silent, fault, happened } = self;
        let mut wrong = Vec::new();
        tally.lists += 1;
        tally.items += delivered;
        if let Some(fault) = fault {
            *tally.faults.entry(format!("{fault:?}")).or_default() += 1;
        }
        if elapsed > deadline + GRACE {
            wrong.push(format!("took {elapsed:?}, with a deadline of {deadline:?}"));
        }
        if !is_silent {
            wrong.push("continued after its end".to_owned());
        }
        // A changed body without a checksum may decode to anything.
        let (mut items_are_exact, mut complete_is_exact) = (true, true);
        if happened && matches!(fault, Some(Fault::Flip | Fault::Drop)) {
            items_are_exact = false;
            complete_is_exact = query.gzip || fault == Some(Fault::Drop) && !query.is_json();
        }
        match end {
            End::Left => tally.left += 1,
            End::Complete(summary) => {
                tally.complete += 1;
                tally.recovered += u64::from(happened);
                items_are_exact |= complete_is_exact;
                if complete_is_exact {
                    wrong.extend(whole.err());
                }
                if summary.items != delivered || !summary.consistent {
                    wrong.push(format!("{delivered} items delivered, but the summary is {summary:?}"));
                }
                tally.retries += summary.attempts.saturating_sub(summary.pages);
            }
            End::Error(error) => {
                if error.items() != delivered {
                    wrong.push(format!("{delivered} items delivered, but the error has {}", error.items()));
                }
                let kind = kind_of(&error);
                if is_outage && may_be_of_restart(&error) {
                    *tally.by_restart.entry(kind).or_default() += 1;
                } else if fault.is_some_and(|fault| may_be_of(&error, fault, happened)) {
                    *tally.broken.entry(kind).or_default() += 1;
                } else {
                    wrong.push(format!("unexpected error: {error}"));
                }
            }
        }
        if items_are_exact {
            wrong.extend(exact.err());
        }
        wrong
    }
}

enum End {
    Left,
    Complete(Box<ListSummary>),
    Error(Error),
}

fn kind_of(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Api { code, .. } => format!("API error {code}"),
        ErrorKind::Transport(error) => format!("{:?}", error.kind()),
        ErrorKind::Incomplete { cause, .. } => match cause {
            Some(cause) => format!("incomplete: {:?}", cause.kind()),
            None => "incomplete".to_owned(),
        },
        ErrorKind::Decode(_) => "decode".to_owned(),
        ErrorKind::UnexpectedBody { .. } => "unexpected encoding".to_owned(),
        ErrorKind::OtherKind { .. } => "another kind".to_owned(),
        other => other.to_string(),
    }
}

fn may_be_of_restart(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Api { code, .. } => matches!(code, 410 | 429 | 500..),
        ErrorKind::Transport(error) => {
            matches!(error.kind(), TransportErrorKind::Connect | TransportErrorKind::Broken)
        }
        _ => error.is_incomplete(),
    }
}

fn may_be_of(error: &Error, fault: Fault, happened: bool) -> bool {
    let transport = match error.kind() {
        ErrorKind::Transport(error) => Some(error.kind()),
        ErrorKind::Incomplete { cause, .. } => cause.as_ref().map(TransportError::kind),
        _ => None,
    };
    match fault {
        Fault::Deadline => transport == Some(TransportErrorKind::Deadline),
        _ if !happened => false,
        // TLS never delivers changed bytes, so the body is only interrupted or truncated.
        _ if fault.is_on_the_way() => transport.is_some() || error.is_incomplete(),
        Fault::End => error.is_incomplete(),
        _ => true,
    }
}
