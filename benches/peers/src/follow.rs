//! Compares caches that follow the Pods of a real API server while the Pods change, one cache at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use listwatch::ItemError;
use listwatch::client::{Client, Config, ListParams, Resource, Selection};
use listwatch_peers::{Latency, State, add_key};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::process::{self, Process};
use crate::report::{self, Row, Title, bytes, count, float, median, seconds};
use crate::ways::{FOLLOWERS, Program, Way};
use crate::{HERE, Programs};

/// Compares caches of listwatch, kube and client-go that follow the Pods of a real API server while the Pods change.
///
/// Needs the binaries that e2e/apiserver/build.sh builds. A cache that does not end up with the server's Pods is an
/// error.
#[derive(clap::Args)]
pub struct Args {
    /// Number of Pods; each takes about 110 kB of the server's memory
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Changes per second; fewer than 95 % of them are an error, except with --restart
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Duration of the changes
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Threads of each cache: `TOKIO_WORKER_THREADS` and `GOMAXPROCS`. Unset, each has as many as cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,

    /// Kill the server halfway and start it again
    #[arg(long)]
    restart: bool,

    /// Measure only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = FOLLOWERS.iter().map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    /// The server's port; etcd uses the next two
    #[arg(long, default_value_t = 16763)]
    port: u16,

    #[command(flatten)]
    output: crate::Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    pods: u32,
    rate: u32,
    seconds: u32,
    restart: bool,
    #[serde(default)]
    threads: Option<u32>,
    cores: usize,
    versions: String,
    runs: Vec<Followed>,
}

/// The measurements of one way.
#[derive(Serialize, Deserialize)]
pub struct Followed {
    way: String,
    /// Until the handler had received all initial Pods, in seconds, like all times here.
    sync: f64,
    /// User and system time until then.
    pub sync_user: f64,
    pub sync_system: f64,
    /// The peak of resident memory until then, in bytes.
    pub sync_peak: u64,
    /// User and system time of the changes, until 50 ms after the last.
    pub cpu: f64,
    /// The peak of resident memory of the whole run.
    pub peak: u64,
    /// Resident memory over time, from the first change, in bytes.
    memory: Vec<(f64, u64)>,
    /// Changes that the loader wrote.
    written: u64,
    /// Changes that the handler received.
    pub changes: u64,
    pub latency: Latency,
    /// From the last change until the cache was found equal to the server's list. Older results call it `in_step`.
    #[serde(alias = "in_step")]
    up_to_date: f64,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        let name = match (self.restart, self.threads) {
            (true, _) => "follow-restart",
            (false, Some(_)) => "follow-threads",
            (false, None) => "follow",
        };
        self.output.write(name, || self.measure(), table).map(drop)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut results = Results {
            pods: self.pods,
            rate: self.rate,
            seconds: self.seconds,
            restart: self.restart,
            threads: self.threads,
            cores: thread::available_parallelism()?.get(),
            versions: programs.versions()?,
            runs: Vec::new(),
        };
        let mut server = ApiServer::start(self.port)?;
        eprintln!("loading {} Pods", self.pods);
        server.load(self.pods)?;
        for way in FOLLOWERS {
            let is_asked_for = self.only.is_empty() || self.only.iter().any(|id| id == way.id);
            if is_asked_for && (way.program == Program::Rust || programs.go.is_some()) {
                eprintln!("{}", way.name);
                results.runs.push(self.follow(way, &programs, &mut server).context(way.name)?);
            }
        }
        Ok(results)
    }

    fn follow(&self, way: &Way, programs: &Programs, server: &mut ApiServer) -> anyhow::Result<Followed> {
        let mut command = programs.command(way, "follower")?;
        command.arg(&server.url).arg(&server.directory.0);
        if let Some(threads) = self.threads {
            command.env("TOKIO_WORKER_THREADS", threads.to_string()).env("GOMAXPROCS", threads.to_string());
        }
        measure(way, command, &mut Changing { args: self, server })
    }
}

/// A collection that changes.
pub trait Following {
    /// Returns the number of its objects and the sum of their hashes.
    fn list(&self) -> anyhow::Result<(u64, u64)>;

    /// Changes objects, and returns the number of changes written.
    fn change(&mut self) -> anyhow::Result<u64>;
}

/// Measures a follower of a collection.
pub fn measure(way: &Way, command: Command, server: &mut impl Following) -> anyhow::Result<Followed> {
    let mut follower = Process::start(command)?;
    let _: String = follower.message()?;
    let proc = follower.proc()?;

    follower.go()?;
    let start = Instant::now();
    let _: String = follower.message()?;
    let sync = start.elapsed().as_secs_f64();
    let ((user, system), sync_peak) = (process::cpu(&proc)?, process::peak(&proc)?);
    let listed = server.list()?;
    ensure!(same(&follower.ask()?, listed), "the cache differs from the server's list");

    // A request for the state iterates over the whole cache, which is no part of the changes.
    let before = process::cpu(&proc)?;
    let is_over = AtomicBool::new(false);
    let (changed, memory) = thread::scope(|scope| {
        let sampler = scope.spawn(|| process::sample(&proc, &is_over, SAMPLE_EVERY));
        let changed = server.change();
        thread::sleep(ASK_EVERY);
        let changed = changed.and_then(|written| Ok((written, process::cpu(&proc)?)));
        let changed = changed.and_then(|changed| Ok((changed, wait_for(&mut follower, server.list()?)?)));
        is_over.store(true, Ordering::Relaxed);
        let memory = sampler.join().map_err(|_| anyhow::anyhow!("the sampler panicked"))?;
        anyhow::Ok((changed, memory))
    })?;
    let ((written, after), (State { changes, latency, .. }, up_to_date)) = changed?;
    Ok(Followed {
        way: way.id.into(),
        sync,
        sync_user: user,
        sync_system: system,
        sync_peak,
        cpu: after.0 + after.1 - before.0 - before.1,
        peak: process::peak(&proc)?,
        memory,
        written,
        changes,
        latency,
        up_to_date,
    })
}

/// The API server, and the changes that the arguments ask for.
struct Changing<'a> {
    args: &'a Args,
    server: &'a mut ApiServer,
}

impl Following for Changing<'_> {
    fn list(&self) -> anyhow::Result<(u64, u64)> {
        self.server.list()
    }

    fn change(&mut self) -> anyhow::Result<u64> {
        let Self { args, server } = self;
        let changing = server.change(args.rate, args.seconds)?;
        if args.restart {
            thread::sleep(Duration::from_secs(args.seconds.into()) / 2);
            server.restart()?;
        }
        let Output { stdout, status, .. } = changing.wait_with_output()?;
        ensure!(status.success(), "the loader failed: {status}");
        let written = String::from_utf8_lossy(&stdout);
        let written =
            written.split_whitespace().nth(1).context("the loader printed no number of changes")?.parse::<u64>()?;
        let asked = u64::from(args.rate) * u64::from(args.seconds);
        let is_reached = args.restart || written * 100 >= asked * 95;
        ensure!(is_reached, "the loader wrote {written} of {asked} changes: use a lower --rate");
        Ok(written)
    }
}

/// Waits until the cache has these objects. Returns the follower's state, and the time of the wait.
pub fn wait_for(follower: &mut Process, listed: (u64, u64)) -> anyhow::Result<(State, f64)> {
    let start = Instant::now();
    loop {
        let state = follower.ask()?;
        if same(&state, listed) {
            return Ok((state, start.elapsed().as_secs_f64()));
        }
        let State { items, .. } = state;
        ensure!(start.elapsed() < LONGEST, "the cache is not up to date: {items} objects, expected {}", listed.0);
        thread::sleep(ASK_EVERY);
    }
}

const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The limit of each wait; backoffs are up to 30 s.
const LONGEST: Duration = Duration::from_mins(2);

fn same(state: &State, (items, hash): (u64, u64)) -> bool {
    (state.items, state.hash) == (items, hash)
}

impl Process {
    /// Requests the state of a follower.
    pub fn ask(&mut self) -> anyhow::Result<State> {
        self.go()?;
        self.message()
    }
}

/// The API server of e2e/apiserver, in its own directory.
struct ApiServer {
    process: Option<Process>,
    directory: Directory,
    port: u16,
    url: String,
}

/// A directory, removed on drop.
struct Directory(PathBuf);

impl ApiServer {
    fn start(port: u16) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("listwatch-peers-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let url = format!("https://127.0.0.1:{port}");
        let mut server = Self { process: None, directory: Directory(directory), port, url };
        server.restart()?;
        Ok(server)
    }

    /// Kills the server, if it runs, and starts it with the data in the directory.
    fn restart(&mut self) -> anyhow::Result<()> {
        drop(self.process.take());
        let Directory(directory) = &self.directory;
        let mut command = Command::new(bin("server"));
        command.args(["-port", &self.port.to_string(), "-etcd-port", &(self.port + 1).to_string(), "-dir"]);
        command.arg(directory).stderr(fs::File::create(directory.join("server.log"))?);
        let mut process = Process::start(command)?;
        let line = process.line()?;
        ensure!(line.starts_with("ready"), "the API server is not ready: {line}");
        self.process = Some(process);
        Ok(())
    }

    fn load(&self, pods: u32) -> anyhow::Result<()> {
        let (n, base) = (pods.to_string(), pods.min(400).to_string());
        let status =
            self.loader().args(["-host", &self.url, "-n", &n, "-base", &base]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "the loader failed: {status}");
        let start = Instant::now();
        // The server's watch cache lags etcd a little.
        while self.list()?.0 < pods.into() {
            ensure!(start.elapsed() < LONGEST, "the API server does not list all Pods");
        }
        Ok(())
    }

    fn change(&self, rate: u32, seconds: u32) -> anyhow::Result<Child> {
        let (rate, span) = (rate.to_string(), format!("{seconds}s"));
        Ok(self.loader().args(["-change", &rate, "-for", &span]).stdout(Stdio::piped()).spawn()?)
    }

    fn loader(&self) -> Command {
        let mut command = Command::new(bin("load"));
        command.args(["-etcd", &format!("http://127.0.0.1:{}", self.port + 1)]);
        command
    }

    /// Returns the number of the server's Pods and the sum of their hashes.
    fn list(&self) -> anyhow::Result<(u64, u64)> {
        let ca = fs::read(self.directory.0.join("ca.crt"))?;
        let client = Client::new(Config::new(&self.url).bearer_token("admin").ca_pem(ca).build()?);
        let (mut items, mut hash) = (0, 0);
        let params = ListParams::new(Selection::all().metadata_only());
        let list = client.list_with(&Resource::PODS, &params, |pod| {
            let meta = pod.meta()?;
            items += 1;
            add_key(&mut hash, &meta.namespace(), &meta.name(), &meta.resource_version());
            Ok::<_, ItemError>(())
        });
        Runtime::new()?.block_on(list.into_vec())?;
        Ok((items, hash))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bin(name: &str) -> PathBuf {
    Path::new(HERE).join("../../e2e/apiserver/bin").join(name)
}

const COLUMNS: [Title; 12] = [
    ("time to sync", seconds),
    ("user CPU to sync", seconds),
    ("system CPU to sync", seconds),
    ("peak memory to sync", bytes),
    ("memory, first fifth", bytes),
    ("memory, last fifth", bytes),
    ("peak memory", bytes),
    ("CPU per change", seconds),
    ("median latency", seconds),
    ("99 % latency", seconds),
    ("longest latency", seconds),
    ("up to date after", seconds),
];

fn table(results: &Results) -> String {
    let Results { pods, rate, seconds, restart, threads, cores, versions, runs } = results;
    let threads = threads.map(|threads| format!(", caches with {threads} thread")).unwrap_or_default();
    let restarts = if *restart { ", the API server killed and restarted halfway" } else { "" };
    let mut out = format!(
        "{} Pods of a real API server, {} changes a second for {seconds} s{restarts}; {cores} cores{threads}. In brackets: the \
         ratio to the first row. Bold: the best of the column.\n\n{versions}.\n\n",
        count(*pods),
        count(*rate),
    );
    let ways = || runs.iter().filter_map(|run| Some((FOLLOWERS.iter().find(|way| way.id == run.way)?, run)));
    let rows: Vec<_> = ways().map(|(way, run)| run.row(way)).collect();
    let best = report::write_rows(&COLUMNS, &rows, &mut out);
    let received = |(way, run): (&Way, &Followed)| {
        let per_second = float(run.written) / f64::from(*seconds);
        format!("{} of {} ({per_second:.0} a second) by {}", run.changes, run.written, way.name)
    };
    let received: Vec<_> = ways().map(received).collect();
    out + &format!("\nChanges that the handler received: {}. {best}\n", received.join("; "))
}

impl Followed {
    fn row(&self, way: &Way) -> Row {
        let memory: Vec<_> = self.memory.iter().map(|(_, bytes)| float(*bytes)).collect();
        let fifth = memory.len().div_ceil(5);
        let latency = |micros: u64| (self.changes > 0).then_some(float(micros) / 1e6);
        let values = vec![
            Some(self.sync),
            Some(self.sync_user),
            Some(self.sync_system),
            Some(float(self.sync_peak)),
            (fifth > 0).then(|| median(memory[..fifth].to_vec())),
            (fifth > 0).then(|| median(memory[memory.len() - fifth..].to_vec())),
            Some(float(self.peak)),
            (self.changes > 0).then(|| self.cpu / float(self.changes)),
            latency(self.latency.p50),
            latency(self.latency.p99),
            latency(self.latency.max),
            Some(self.up_to_date),
        ];
        Row { name: way.name.into(), is_ours: way.is_ours(), values }
    }
}
