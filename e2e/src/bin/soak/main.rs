//! Runs concurrent lists against a real API server for a given time. A tenth of the lists meets a fault, and the server
//! is killed every 30 seconds: `cargo run --release -p listwatch-e2e -- 1h`, after apiserver/build.sh has
//! built the server.
//!
//! It fails if a complete list differs from the loaded objects in any item or byte, if an error has no cause or reports
//! the wrong number of delivered items, if a list ends after its deadline, or if memory, descriptors or tasks are left
//! when no list runs.
//!
//! At the same time, three reflectors, one for each strategy, fill compressed stores over unreliable connections, while
//! objects are changed, deleted and created. A mirror serves these objects to three more reflectors and to kube's. It
//! fails if, once the changes stop, a store differs from the server in any byte, or its subscriber has missed a change.
//!
//! `soak million` needs no API server and takes a minute: it lists a million Pods in a process of its own, and fails if
//! that process ever holds 32 MB.

mod caches;
#[path = "../../../../tests/support/memory.rs"]
mod memory;
mod million;
mod query;
#[path = "../../../../tests/support/reference.rs"]
mod reference;
mod trouble;
mod usage;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
/// How long the tasks and connections of dropped clients may take to end.
const SETTLE: Duration = Duration::from_secs(10);
/// The quiet points that do not count: before them, buffers and thread locals are allocated for the first time.
const WARM_UP: usize = 1;
/// After this many failures the soak ends early.
const MOST_WRONG: usize = 20;

/// Lists from a real API server repeatedly, with faults and restarts
#[derive(Parser)]
#[command(name = "soak", version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// How long to run: 90s, 2m, 1h
    #[arg(default_value = "2m", value_parser = duration)]
    duration: Duration,

    /// How often the server is killed and restarted
    #[arg(long, default_value = "30s", value_parser = duration)]
    restart_every: Duration,

    /// Number of concurrent lists
    #[arg(long, default_value_t = 4)]
    workers: usize,

    /// Number of Pods, of 8 KB each
    #[arg(long, default_value_t = 2000)]
    pods: u64,

    /// Seed of the faults and their places; it does not determine their times
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List a million Pods in less than 32 MB
    Million {
        /// URL to list from, in the process that this one starts
        #[arg(hide = true)]
        url: Option<String>,
    },
}

fn duration(text: &str) -> std::result::Result<Duration, jiff::Error> {
    text.parse::<SignedDuration>()?.try_into()
}

/// The client under test has its own runtime, so that its tasks can be counted.
fn main() -> ExitCode {
    let args = Args::parse();
    let clients = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let Some(Command::Million { url }) = args.command {
        let done = clients.block_on(async {
            match url {
                Some(url) => million::list(&url).await,
                None => million::serve().await,
            }
        });
        return exit_code(done.map(|()| ExitCode::SUCCESS));
    }
    let helpers = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let reflectors = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    exit_code(clients.block_on(soak(&args, helpers.handle(), reflectors.handle())))
}

fn exit_code(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

async fn soak(args: &Args, helpers: &Handle, reflectors: &Handle) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut server = Server::start(PORT, &[])?;
    let world = Arc::new(world(&server, args).await?);
    let mut workers = Vec::new();
    for _ in 0..args.workers {
        let trouble = Arc::new(Trouble::default());
        let proxy = helpers.spawn(proxy(world.server, Arc::clone(&trouble))).await??;
        workers.push(Worker { rng: rng.fork(), trouble, proxy, world: Arc::clone(&world) });
    }
    let caches = Arc::new(reflectors.spawn(Caches::start(Arc::clone(&world), rng.fork())).await??);
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = helpers.spawn(interrupt(Arc::clone(&world), Arc::clone(&interrupted)));
    let start = Instant::now();
    let lines = helpers.spawn(lines(start, Arc::clone(&world), Arc::clone(&caches), Handle::current()));
    // The proxies, and the two tasks above.
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
            if let Some(words) = server.last_words() {
                world.tally.lock().unwrap().wrong.push(format!("the server ended by itself: {words}"));
            }
            let restarted;
            (server, restarted) = helpers
                .spawn_blocking(move || {
                    let restarted = server.restart(&[]);
                    (server, restarted)
                })
                .await?;
            if !interrupted.load(Ordering::Relaxed) {
                restarted?;
                *world.outage.lock().unwrap() = Outage { down: false, up_since: Some(Instant::now()) };
            }
            restarts += 1;
        }
        world.stop.store(true, Ordering::Relaxed);
        while let Some(worker) = round.join_next().await {
            workers.push(worker?);
        }
        let _quiet = caches.quiet().await;
        if !interrupted.load(Ordering::Relaxed) {
            for diverged in caches.divergences().await {
                println!("WRONG: {diverged}");
                world.tally.lock().unwrap().wrong.push(diverged);
            }
        }
        let tasks = || (Handle::current().metrics().num_alive_tasks(), helpers.metrics().num_alive_tasks());
        let settled = Instant::now();
        while tasks() != (0, background) && settled.elapsed() < SETTLE {
            sleep(Duration::from_millis(10)).await;
        }
        let usage = Usage::now(caches.memory());
        let (of_client, others) = tasks();
        println!("quiet: {usage}, {of_client} tasks, {} connections", others - background);
        if (of_client, others) != (0, background) {
            let left = format!("{of_client} tasks and {} connections of dropped clients are left", others - background);
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

/// Loads the server, and fetches the expected result of each query.
async fn world(server: &Server, args: &Args) -> Result<World> {
    server.load(args.pods)?;
    server.apply_widgets(&widgets())?;
    let queries = QUERIES;
    // The loader writes directly into etcd, so the server's watch cache needs a moment.
    while Known::ask(server, &queries[0]).await?.len() < args.pods {}
    let mut known = Vec::new();
    for query in queries {
        let of_query = Known::ask(server, &query).await?;
        known.push((query, of_query));
    }
    for (i, resource) in [(0, "pods"), (11, "widgets")] {
        let names: BTreeSet<_> = known[i].1.names().map(str::to_owned).collect();
        if names != server.names(&[resource, "-A"])? {
            return Err(format!("kubectl lists other {resource}").into());
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

/// Waits for Ctrl-C. The terminal interrupts the server too, so later errors are expected.
async fn interrupt(world: Arc<World>, interrupted: Arc<AtomicBool>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        world.outage.lock().unwrap().down = true;
        interrupted.store(true, Ordering::Relaxed);
    }
    std::future::pending::<()>().await;
}

async fn lines(start: Instant, world: Arc<World>, caches: Arc<Caches>, clients: Handle) {
    loop {
        sleep(LINE_EVERY).await;
        let tasks = clients.metrics().num_alive_tasks();
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
    let _ = writeln!(text, "{} items, {} retries", tally.items, tally.retries);
    let _ = writeln!(text, "faults: {}", kinds(&tally.faults));
    let _ = writeln!(text, "failed by faults: {}", kinds(&tally.broken));
    let _ = writeln!(text, "failed by restarts: {}", kinds(&tally.by_restart));
    for wrong in &tally.wrong {
        let _ = writeln!(text, "WRONG: {wrong}");
    }
    text
}
