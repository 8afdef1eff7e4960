//! A child process of this program that sends its messages as lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// A child process, which exits when its stdin is closed, as by the end of this process.
pub struct ChildProcess {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<String>,
}

impl ChildProcess {
    pub fn start(args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let (sender, messages) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { child, stdin, messages })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn send_go(&mut self) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(b"\n")?)
    }

    /// Returns the next message; `None` if there is none within this time.
    ///
    /// # Errors
    ///
    /// The child has exited. Its stderr, which it shares with this process, has the reason.
    pub fn message(&mut self, within: Duration) -> anyhow::Result<Option<String>> {
        match self.messages.recv_timeout(within) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the process ended with {}", self.child.wait()?),
        }
    }

    pub fn end(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        child.wait()?;
        Ok(())
    }
}

/// Samples the memory of a process.
pub struct MemorySampler {
    system: System,
    id: Pid,
}

impl MemorySampler {
    pub fn new(id: u32) -> Self {
        Self { system: System::new(), id: Pid::from_u32(id) }
    }

    /// Returns the resident memory in bytes.
    pub fn sample(&mut self) -> anyhow::Result<u64> {
        let what = ProcessRefreshKind::nothing().with_memory().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.id]), true, what);
        Ok(self.system.process(self.id).context("the process has exited")?.memory())
    }
}
