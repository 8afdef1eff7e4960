//! Child processes of this program, and both ends of their pipes. A child sends its messages as lines of JSON.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A child process. Dropping it kills the process.
pub struct ChildProcess {
    child: Child,
    id: u32,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    pub fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Only the parent receives Ctrl-C; it then ends its children.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let id = child.id().context("the process has exited")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self { child, id, stdin, stdout: BufReader::new(stdout).lines() })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub async fn send_go(&mut self) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(b"\n").await?)
    }

    /// Returns the next message. Cancel safe.
    pub async fn next_message<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        match self.stdout.next_line().await? {
            Some(line) => Ok(serde_json::from_str(&line)?),
            None => Err(self.failure().await?),
        }
    }

    pub async fn end(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        child.wait().await?;
        Ok(())
    }

    /// Returns the error of a child that exited too early: its stderr and its exit status.
    async fn failure(&mut self) -> anyhow::Result<anyhow::Error> {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut text).await?;
        }
        let status = self.child.wait().await?;
        let text = text.trim().trim_start_matches("error: ");
        Ok(if text.is_empty() { anyhow!("a process ended with {status}") } else { anyhow!("{text} ({status})") })
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

/// The child's end of the pipes to its parent.
pub mod parent {
    use std::io::{self, Write};

    use serde::Serialize;

    pub fn send_message(message: &impl Serialize) -> anyhow::Result<()> {
        Ok(writeln!(io::stdout(), "{}", serde_json::to_string(message)?)?)
    }

    pub fn wait_for_go() -> io::Result<()> {
        io::stdin().read_line(&mut String::new())?;
        Ok(())
    }

    /// Exits this process as soon as the parent exits or closes the pipe.
    pub fn exit_with_parent() {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
}
