//! Child processes, and what `/proc` reports about them.
//!
//! A child sends messages as lines of JSON, and waits for a line from the runner after each. A client sends `"ready"`,
//! lists, sends [`Done`], comes to rest, sends `"idle"`, uses its store, and sends [`StoreTimes`], or `null` without a
//! store. A follower sends `"ready"`, follows, sends `"synced"`, and then a [`State`](listwatch_peers::State) for each
//! line from the runner.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use listwatch_peers::{Done, Serving, StoreTimes};
use procfs::process::Process as Proc;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Time for the background threads of a runtime to return memory to the system.
pub const REST: Duration = Duration::from_millis(500);

/// The measurements of one run of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From the signal to list to the message that all Pods were read, in seconds, like all times here.
    pub wall: f64,
    pub user: f64,
    pub system: f64,
    pub first_item: f64,
    /// The peak of resident memory, in bytes.
    pub peak: u64,
    /// Resident memory at rest, while the client keeps the result, minus resident memory before the list.
    pub held: u64,
    /// Resident memory over time, in bytes.
    pub memory: Vec<(f64, u64)>,
    /// The times of a store's calls, which are measured last.
    pub store: Option<StoreTimes>,
}

/// Runs a client against its own server.
pub fn measure(server: Command, mut client: Command, pods: u32) -> anyhow::Result<Run> {
    let mut server = Process::start(server)?;
    let serving: Serving = server.message()?;
    client.arg(&serving.url);
    measure_client(client, pods, serving.hash, REST)
}

/// Runs a client that must read this many objects with this sum of hashes, and comes to rest for some time.
pub fn measure_client(client: Command, objects: u32, hash: u64, rest: Duration) -> anyhow::Result<Run> {
    let mut client = Process::start(client)?;
    let _: String = client.message()?;

    let proc = client.proc()?;
    let before = proc.status()?.vmrss.context("/proc has no VmRSS")? * 1024;
    let (user, system) = cpu(&proc)?;
    let listed = AtomicBool::new(false);
    let (done, wall, mut memory) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&proc, &listed, SAMPLE_EVERY));
        client.go()?;
        let start = Instant::now();
        let done = client.message::<Done>();
        let wall = start.elapsed();
        listed.store(true, Ordering::Relaxed);
        let memory = sampler.join().map_err(|_| anyhow::anyhow!("the sampler panicked"))?;
        anyhow::Ok((done?, wall, memory))
    })?;
    let (user_after, system_after) = cpu(&proc)?;
    let status = proc.status()?;
    let peak = peak(&proc)?;

    ensure!(done.items == u64::from(objects), "the client read {} objects, expected {objects}", done.items);
    ensure!(done.hash == hash, "the client read other objects than the server sent");
    client.go()?;
    let _: String = client.message()?;
    thread::sleep(rest);
    let held = (proc.status()?.vmrss.context("/proc has no VmRSS")? * 1024).saturating_sub(before);
    client.go()?;
    let store = client.message()?;
    let wall = wall.as_secs_f64();
    memory.retain(|(at, _)| *at < wall);
    memory.push((wall, status.vmrss.context("/proc has no VmRSS")? * 1024));
    Ok(Run {
        wall,
        user: user_after - user,
        system: system_after - system,
        first_item: Duration::from_nanos(done.first_item).as_secs_f64(),
        peak,
        held,
        memory,
        store,
    })
}

/// Returns the peak of resident memory, in bytes.
pub fn peak(proc: &Proc) -> anyhow::Result<u64> {
    Ok(proc.status()?.vmhwm.context("/proc has no VmHWM")? * 1024)
}

/// Returns user and system time, in seconds.
#[expect(clippy::cast_precision_loss, reason = "hundredths of seconds")]
pub fn cpu(proc: &Proc) -> anyhow::Result<(f64, f64)> {
    let stat = proc.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    Ok((seconds(stat.utime), seconds(stat.stime)))
}

/// Samples resident memory, in bytes, until `is_over` is set.
pub fn sample(proc: &Proc, is_over: &AtomicBool, every: Duration) -> Vec<(f64, u64)> {
    let start = Instant::now();
    let mut memory = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        // The process has ended; reading its next message returns the error.
        let Ok(statm) = proc.statm() else { break };
        memory.push((start.elapsed().as_secs_f64(), statm.resident * procfs::page_size()));
        thread::sleep(every);
    }
    memory
}

/// A child process, killed on drop.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdin = child.stdin.take().context("the process has no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("the process has no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    /// Returns its entry in `/proc`.
    pub fn proc(&self) -> anyhow::Result<Proc> {
        Ok(Proc::new(self.child.id().try_into()?)?)
    }

    pub fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(b"\n")?)
    }

    pub fn message<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "the process ended early: {}", self.child.wait()?);
        Ok(line)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
