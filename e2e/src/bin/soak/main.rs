//! Lists from a real API server for as long as one likes, several at once, while a tenth of them meets a fault and the server is
//! killed every 30 seconds: `cargo run --release -p listwatch-e2e -- 1h`, once apiserver/build.sh has built the server.
//!
//! It fails on a complete list that is not what was loaded, item by item and byte by byte; on an error that nothing provoked,
//! or that reports the wrong number of delivered items; on a list that ends after its deadline; and on memory, descriptors or
//! tasks that are left when no list is running.
//!
//! At the same time, three reflectors, one for each strategy, fill compressed stores over connections that break, while objects
//! are changed, deleted and created. It fails if one does not equal the server, byte by byte, once the changes stop, or if its
//! subscriber missed a change.

mod caches;
mod query;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod trouble;
mod usage;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use caches::Caches;
use clap::Parser;
use fastrand::Rng;
use jiff::SignedDuration;
use listwatch_e2e::{Result, Server};
use query::{Known, QUERIES};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::sleep;
use trouble::{Trouble, proxy};
use usage::{Usage, leaks};
use worker::{Outage, Tally, Worker, World};

const PORT: u16 = 16743;
const WIDGETS: usize = 200;
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How long what a dropped client leaves may take to end.
const SETTLE: Duration = Duration::from_secs(10);
/// The quiet points that do not count: until every buffer and thread local has been needed once.
const WARM_UP: usize = 1;
/// More would say nothing new.
const MOST_WRONG: usize = 20;

/// Lists from a real API server, over and over, while things go wrong.
#[derive(Parser)]
#[command(name = "soak", version)]
struct Args {
    /// For how long: 90s, 2m, 1h.
    #[arg(default_value = "2m", value_parser = duration)]
    duration: Duration,

    /// How often the server is killed and started again.
    #[arg(long, default_value = "30s", value_parser = duration)]
    restart_every: Duration,

    /// How many lists at once.
    #[arg(long, default_value_t = 4)]
    workers: usize,

    /// Of 8 KB each.
    #[arg(long, default_value_t = 2000)]
    pods: usize,

    /// What goes wrong, and where, follows from it: not when.
    #[arg(long)]
    seed: Option<u64>,
}

fn duration(text: &str) -> std::result::Result<Duration, jiff::Error> {
    text.parse::<SignedDuration>()?.try_into()
}

/// The client under test has a runtime of its own, so that its tasks can be counted.
fn main() -> ExitCode {
    let args = Args::parse();
    let here = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let beside = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let state = env::temp_dir().join(format!("listwatch-soak-{}", process::id()));
    let done = here.block_on(soak(&args, &state, elsewhere.handle(), beside.handle()));
    let _ = fs::remove_dir_all(&state);
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(args: &Args, state: &Path, elsewhere: &Handle, beside: &Handle) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut server = Some(Server::start(state, PORT, &[])?);
    let world = Arc::new(world(server.as_ref().ok_or("no server")?, args).await?);
    let mut workers = Vec::new();
    for _ in 0..args.workers {
        let trouble = Arc::new(Trouble::default());
        let proxy = elsewhere.spawn(proxy(world.server, Arc::clone(&trouble))).await??;
        workers.push(Worker { rng: rng.fork(), trouble, proxy, world: Arc::clone(&world) });
    }
    let caches = Arc::new(beside.spawn(Caches::start(Arc::clone(&world), rng.fork())).await??);
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = elsewhere.spawn(interrupt(Arc::clone(&world), Arc::clone(&interrupted)));
    let start = Instant::now();
    let lines = elsewhere.spawn(lines(start, Arc::clone(&world), Arc::clone(&caches), Handle::current()));
    // The proxies, and the two above.
    let background = args.workers + 2;

    let (mut points, mut restarts) = (Vec::new(), 0);
    while start.elapsed() < args.duration && !is_over(&world, &interrupted) {
        let kill_at = start + args.restart_every * (restarts + 1);
        world.stop.store(false, Ordering::Relaxed);
        let mut round: JoinSet<Worker> = workers.drain(..).map(Worker::run).collect();
        while Instant::now() < kill_at && !is_over(&world, &interrupted) {
            sleep(Duration::from_millis(100)).await;
        }
        if !interrupted.load(Ordering::Relaxed) {
            world.outage.lock().unwrap().down = true;
            if let Some(words) = server.take().and_then(|mut server| server.last_words()) {
                world.tally.lock().unwrap().wrong.push(format!("the server ended by itself: {words}"));
            }
            let state = state.to_owned();
            let again = elsewhere.spawn_blocking(move || Server::start(&state, PORT, &[])).await?;
            if !interrupted.load(Ordering::Relaxed) {
                server = Some(again?);
                *world.outage.lock().unwrap() = Outage { down: false, up_since: Some(Instant::now()) };
            }
            restarts += 1;
        }
        world.stop.store(true, Ordering::Relaxed);
        while let Some(worker) = round.join_next().await {
            workers.push(worker?);
        }
        let _quiet = caches.quiet().await;
        if server.is_some() {
            for diverged in caches.divergences().await {
                println!("WRONG: {diverged}");
                world.tally.lock().unwrap().wrong.push(diverged);
            }
        }
        let tasks = || (Handle::current().metrics().num_alive_tasks(), elsewhere.metrics().num_alive_tasks());
        let settled = Instant::now();
        while tasks() != (0, background) && settled.elapsed() < SETTLE {
            sleep(Duration::from_millis(10)).await;
        }
        let usage = Usage::now(caches.memory());
        let (of_client, others) = tasks();
        println!("quiet: {usage}, {of_client} tasks, {} connections", others - background);
        if (of_client, others) != (0, background) {
            let left = format!("{of_client} tasks and {} connections are left of dropped clients", others - background);
            world.tally.lock().unwrap().wrong.push(left);
        }
        points.push(usage);
    }
    lines.abort();
    interrupt.abort();

    let mut tally = std::mem::take(&mut *world.tally.lock().unwrap());
    tally.wrong.extend(leaks(points.get(WARM_UP..).unwrap_or_default()));
    print!("{}{}", summary(&tally, start.elapsed(), restarts, points.len()), caches.summary());
    println!("seed {seed}");
    Ok(match (tally.wrong.is_empty(), interrupted.load(Ordering::Relaxed)) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(130),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Loads the server, and finds out what it has.
async fn world(server: &Server, args: &Args) -> Result<World> {
    server.load(args.pods)?;
    server.apply_widgets(&widgets())?;
    let queries = QUERIES;
    // The loader writes into etcd behind the server's back; its watch cache follows a little later.
    while Known::ask(server, &queries[0]).await?.len() < args.pods as u64 {}
    let mut known = Vec::new();
    for query in queries {
        let of_query = Known::ask(server, &query).await?;
        known.push((query, of_query));
    }
    for (i, resource) in [(0, "pods"), (11, "widgets")] {
        let names: BTreeSet<_> = known[i].1.names().map(str::to_owned).collect();
        if names != server.names(&[resource, "-A"])? {
            return Err(format!("kubectl has other {resource}").into());
        }
    }
    Ok(World {
        queries: known,
        server: server.url.strip_prefix("https://").ok_or("no https")?.parse()?,
        ca: server.ca()?,
        kube: server.kube(|_| {}).await?,
        outage: Mutex::default(),
        stop: AtomicBool::new(false),
        tally: Mutex::default(),
    })
}

fn widgets() -> String {
    let widget = |i| {
        let text = "a \\\"wide\\\" gadget \\u00e9 {[]} ".repeat(i % 40);
        format!(
            r#"{{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w-{i}", "namespace": "team-0{}"}},
            "spec": {{"n": {i}, "text": "{text}"}}}}"#,
            i % 10
        )
    };
    let items: Vec<_> = (0..WIDGETS).map(widget).collect();
    format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{}]}}"#, items.join(","))
}

fn is_over(world: &World, interrupted: &AtomicBool) -> bool {
    interrupted.load(Ordering::Relaxed) || world.tally.lock().unwrap().wrong.len() >= MOST_WRONG
}

/// The terminal interrupts the server too: what breaks from then on is meant.
async fn interrupt(world: Arc<World>, interrupted: Arc<AtomicBool>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        world.outage.lock().unwrap().down = true;
        interrupted.store(true, Ordering::Relaxed);
    }
    std::future::pending::<()>().await;
}

async fn lines(start: Instant, world: Arc<World>, caches: Arc<Caches>, here: Handle) {
    loop {
        sleep(LINE_EVERY).await;
        let tasks = here.metrics().num_alive_tasks();
        let (elapsed, tally) = (start.elapsed().as_secs(), world.tally.lock().unwrap());
        println!("{elapsed} s: {tally}; {}, {tasks} tasks", Usage::now(caches.memory()));
    }
}

fn summary(tally: &Tally, elapsed: Duration, restarts: u32, points: usize) -> String {
    let kinds = |counts: &BTreeMap<String, u64>| {
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        counts.join(", ")
    };
    let mut text = format!("\n{} s, {restarts} restarts, {points} quiet points\n{tally}\n", elapsed.as_secs());
    let _ = writeln!(text, "{} items, {} requests sent again", tally.items, tally.again);
    let _ = writeln!(text, "faults: {}", kinds(&tally.faults));
    let _ = writeln!(text, "broken as meant: {}", kinds(&tally.broken));
    let _ = writeln!(text, "by restarts: {}", kinds(&tally.by_restart));
    for wrong in &tally.wrong {
        let _ = writeln!(text, "WRONG: {wrong}");
    }
    text
}
