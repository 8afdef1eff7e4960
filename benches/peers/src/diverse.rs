//! Compares lists and caches of diverse Pods, for the table and the picture of README.md.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use listwatch_peers::Serving;
use listwatch_peers::server::Variety;
use procfs::process::Process as Proc;
use serde::{Deserialize, Serialize};

use crate::process::{self, Process, REST, Run};
use crate::report::{self, Row, Title, bytes, count, float, seconds};
use crate::ways::{DIVERSE, Program, Way};
use crate::{Output, Programs, kubectl, plot};

/// Compares lists and caches of diverse Pods: listwatch, client-go, kube, kubectl and the Python client.
///
/// Each way runs once. A way that does not read exactly the Pods that were sent is an error; of kubectl only the number
/// of names is known. `PYTHON` names a Python that has the package `kubernetes`, and `KUBECTL` a kubectl.
#[derive(clap::Args)]
pub struct Args {
    /// Number of Pods; each takes about 10.6 kB in protobuf
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Measure only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = DIVERSE.iter().map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    #[command(flatten)]
    output: Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    pods: u32,
    cores: usize,
    versions: String,
    runs: Vec<(String, Run)>,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        let results = self.output.write("diverse", || self.measure(), table)?;
        let caption = format!("Memory while {} diverse Pods are listed or cached", count(results.pods));
        plot::write_memory(&self.output.out.join("diverse.svg"), caption, DIVERSE, &results.runs)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut runs = Vec::new();
        for way in DIVERSE {
            let is_asked_for = self.only.is_empty() || self.only.iter().any(|id| id == way.id);
            if is_asked_for && (way.program != Program::Go || programs.go.is_some()) {
                eprintln!("{}", way.name);
                let run = self.measure_way(way, &programs).with_context(|| way.name.to_owned())?;
                runs.push((way.id.to_owned(), run));
            }
        }
        let cores = thread::available_parallelism()?.get();
        Ok(Results { pods: self.pods, cores, versions: versions(&programs)?, runs })
    }

    fn measure_way(&self, way: &Way, programs: &Programs) -> anyhow::Result<Run> {
        let variety = if way.needs_json() { Variety::DiverseJson } else { Variety::Diverse };
        let mut server = Command::new(programs.rust.join("server"));
        server.args([&self.pods.to_string(), variety.name()]);
        let mut client = programs.command(way, "client")?;
        if way.program != Program::Kubectl {
            return process::measure(server, client, self.pods);
        }
        let mut server = Process::start(server)?;
        let serving: Serving = server.message()?;
        client.args(["--server", &serving.url, "--kubeconfig", "/dev/null", "get", "pods", "-A", "-o", "name"]);
        measure_command(client, self.pods)
    }
}

/// Runs a command that prints a line for each Pod.
fn measure_command(mut command: Command, pods: u32) -> anyhow::Result<Run> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let reader = thread::spawn(move || stdout.lines().map_while(Result::ok).count());
    let proc = Proc::new(child.id().try_into()?)?;
    let (mut memory, mut peak) = (Vec::new(), 0);
    // A process that has ended has no memory, but its times until somebody waits for it.
    while let Some(status) = proc.status().ok().filter(|status| status.vmrss.is_some()) {
        let [resident, most] = [status.vmrss, status.vmhwm].map(|size| size.unwrap_or_default() * 1024);
        memory.push((start.elapsed().as_secs_f64(), resident));
        peak = peak.max(most);
        thread::sleep(Duration::from_millis(10));
    }
    let (user, system) = process::cpu(&proc)?;
    let status = child.wait()?;
    let wall = start.elapsed().as_secs_f64();
    let lines = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    ensure!(status.success() && lines == pods as usize, "{status}, with {lines} names");
    thread::sleep(REST);
    Ok(Run { wall, user, system, first_item: wall, peak, held: 0, memory, store: None })
}

fn versions(programs: &Programs) -> anyhow::Result<String> {
    let first_line = |mut command: Command| -> anyhow::Result<String> {
        let output = command.output().with_context(|| format!("cannot start {command:?}"))?.stdout;
        Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().replace("Client Version: v", ""))
    };
    let mut kubectl = kubectl();
    kubectl.args(["version", "--client"]);
    let mut python = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    python.args([
        "-c",
        "import kubernetes, platform; print(kubernetes.__version__, f'(Python {platform.python_version()})')",
    ]);
    Ok(format!("{}, kubectl {}, Python client {}", programs.versions()?, first_line(kubectl)?, first_line(python)?))
}

const COLUMNS: [Title; 3] = [("user CPU", seconds), ("peak memory", bytes), ("held memory", bytes)];

fn table(results: &Results) -> String {
    let Results { pods, cores, versions, runs } = results;
    let pods = count(*pods);
    let mut out =
        format!("{pods} diverse Pods; one run on {cores} cores. Bold: the best of the column.\n\n{versions}.\n\n");
    let rows = runs.iter().filter_map(|(id, run)| {
        let way = DIVERSE.iter().find(|way| way.id == id)?;
        let held = (run.held > 0).then(|| float(run.held));
        Some(Row {
            name: way.name.into(),
            is_ours: way.is_ours(),
            values: vec![Some(run.user), Some(float(run.peak)), held],
        })
    });
    let best = report::write_rows(&COLUMNS, &rows.collect::<Vec<_>>(), &mut out);
    out + "\n" + &best + "\n"
}
