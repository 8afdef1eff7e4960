//! Processes of this program: what the parent does with them, and they with their parent. They speak in lines of JSON.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A child, killed when it is dropped.
pub struct Process {
    child: Child,
    id: u32,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C is for the parent, which then ends its children.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let id = child.id().context("the process is gone")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self { child, id, stdin, stdout: BufReader::new(stdout).lines() })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(b"\n").await?)
    }

    /// The next message. May be cancelled.
    pub async fn message<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
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

    /// It ended too early: with what, and what it said.
    async fn failure(&mut self) -> anyhow::Result<anyhow::Error> {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).await?;
        }
        let status = self.child.wait().await?;
        let said = said.trim().trim_start_matches("error: ");
        Ok(if said.is_empty() { anyhow!("a process ended with {status}") } else { anyhow!("{said} ({status})") })
    }
}

/// Looks at the memory of a process.
pub struct Sampler {
    system: System,
    id: Pid,
}

impl Sampler {
    pub fn new(id: u32) -> Self {
        Self { system: System::new(), id: Pid::from_u32(id) }
    }

    /// Its resident memory.
    pub fn sample(&mut self) -> anyhow::Result<u64> {
        let what = ProcessRefreshKind::nothing().with_memory().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.id]), true, what);
        Ok(self.system.process(self.id).context("the process is gone")?.memory())
    }
}

/// The other side.
pub mod parent {
    use std::io::{self, Write};

    use serde::Serialize;

    pub fn tell(message: &impl Serialize) -> anyhow::Result<()> {
        Ok(writeln!(io::stdout(), "{}", serde_json::to_string(message)?)?)
    }

    pub fn wait_for_go() -> io::Result<()> {
        io::stdin().read_line(&mut String::new())?;
        Ok(())
    }

    /// Ends this process when the parent is gone or has no more use for it, whatever it does then.
    pub fn end_with_it() {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
}
