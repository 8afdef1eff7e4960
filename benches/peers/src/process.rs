//! Processes and what the system says of them.
//!
//! They speak in lines of JSON, and go on when they are sent a line. A client says `"ready"`, is told to list, says
//! [`Done`], is told to come to rest, says `"idle"`, is told to use its store, and says what that took: [`StoreTimes`], or
//! `null` without one. A follower says `"ready"`, is told to follow, says `"synced"`, and then a
//! [`State`](listwatch_peers::State) each time it is sent a line.

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
/// For the threads of runtimes that give memory back.
pub const REST: Duration = Duration::from_millis(500);

/// What one run of one client took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From the word to list to the word that all is seen, in seconds, as all times here.
    pub wall: f64,
    pub user: f64,
    pub system: f64,
    pub first_item: f64,
    /// The most that was resident, in bytes.
    pub peak: u64,
    /// Resident at rest, while the result is kept, over what was before the list.
    pub held: u64,
    /// Resident bytes over time.
    pub memory: Vec<(f64, u64)>,
    /// Of a store, used when all else was measured.
    pub store: Option<StoreTimes>,
}

/// Runs a client against a server of its own.
pub fn measure(server: Command, mut client: Command, pods: u32) -> anyhow::Result<Run> {
    let mut server = Process::start(server)?;
    let serving: Serving = server.message()?;
    client.arg(&serving.url);
    let mut client = Process::start(client)?;
    let _: String = client.message()?;

    let proc = client.proc()?;
    let before = proc.status()?.vmrss.context("no memory")? * 1024;
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

    ensure!(done.items == u64::from(pods), "{} Pods were seen, not {pods}", done.items);
    ensure!(done.hash == serving.hash, "the Pods that were seen are not those that were sent");
    client.go()?;
    let _: String = client.message()?;
    thread::sleep(REST);
    let held = (proc.status()?.vmrss.context("no memory")? * 1024).saturating_sub(before);
    client.go()?;
    let store = client.message()?;
    let wall = wall.as_secs_f64();
    memory.retain(|(at, _)| *at < wall);
    memory.push((wall, status.vmrss.context("no memory")? * 1024));
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

/// The most that was ever resident, in bytes.
pub fn peak(proc: &Proc) -> anyhow::Result<u64> {
    Ok(proc.status()?.vmhwm.context("no peak")? * 1024)
}

/// User and system time, in seconds.
#[expect(clippy::cast_precision_loss, reason = "hundredths of seconds")]
pub fn cpu(proc: &Proc) -> anyhow::Result<(f64, f64)> {
    let stat = proc.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    Ok((seconds(stat.utime), seconds(stat.stime)))
}

/// Resident bytes over time, until it is over.
pub fn sample(proc: &Proc, is_over: &AtomicBool, every: Duration) -> Vec<(f64, u64)> {
    let start = Instant::now();
    let mut memory = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        // A client that is gone has said why.
        let Ok(statm) = proc.statm() else { break };
        memory.push((start.elapsed().as_secs_f64(), statm.resident * procfs::page_size()));
        thread::sleep(every);
    }
    memory
}

/// Killed when it is dropped.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    /// What the system says of it.
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
        ensure!(self.stdout.read_line(&mut line)? > 0, "it ended before its time: {}", self.child.wait()?);
        Ok(line)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
