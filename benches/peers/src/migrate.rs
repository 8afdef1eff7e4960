//! Compares three programs on kube with the same programs on listwatch: lines, memory and CPU time.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use listwatch_peers::migrations::server::ApiServer;
use listwatch_peers::migrations::{Program, objects};
use listwatch_peers::{State, add_key};
use serde::{Deserialize, Serialize};

use crate::follow;
use crate::process::{self, Process};
use crate::report::{bytes, count, float, median, seconds};
use crate::{HERE, Programs, available_memory};

/// Compares three programs on kube with the same programs on listwatch: lines, memory and CPU time.
///
/// The server is a thread of this program and sends JSON only. The programs take turns.
#[derive(clap::Args)]
pub struct Args {
    /// Number of objects of the operator and of the policies
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(3000..))]
    objects: u32,

    /// Number of Pods of the router; on kube each takes about 300 kB at the peak
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Number of runs of each program
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Changes per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Duration of the changes
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Measure only these programs
    #[arg(long, value_name = "PROGRAM", num_args = 1.., default_values = ["router", "operator", "policies"])]
    only: Vec<String>,

    #[command(flatten)]
    output: crate::Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    rate: u32,
    seconds: u32,
    runs: u32,
    cores: usize,
    versions: String,
    programs: Vec<Measured>,
}

/// A program on both libraries.
#[derive(Serialize, Deserialize)]
struct Measured {
    program: String,
    objects: u32,
    lines: Lines,
    kube: Vec<Run>,
    listwatch: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Lines {
    /// Of the program on kube and of the program on listwatch, with what both share.
    kube: usize,
    listwatch: usize,
    removed: usize,
    added: usize,
}

#[derive(Serialize, Deserialize)]
struct Run {
    /// Until the program has its objects.
    sync_cpu: f64,
    /// The peak of resident memory until then, and of the whole run.
    sync_peak: u64,
    peak: u64,
    /// Resident memory a second after that, minus resident memory before.
    held: u64,
    /// CPU time of the changes, per change.
    change_cpu: f64,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        self.output.write("migrations", || self.measure(), tables).map(drop)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut results = Results {
            rate: self.rate,
            seconds: self.seconds,
            runs: self.runs,
            cores: thread::available_parallelism()?.get(),
            versions: programs.versions()?,
            programs: Vec::new(),
        };
        for program in Program::ALL.into_iter().filter(|program| self.only.iter().any(|name| name == program.name())) {
            let mut measured = Measured {
                program: program.name().into(),
                objects: self.objects_of(program),
                lines: lines(program)?,
                kube: Vec::new(),
                listwatch: Vec::new(),
            };
            for number in 1..=self.runs {
                for library in ["kube", "listwatch"] {
                    let run = self.run_once(&programs, program, library).with_context(|| program.name())?;
                    eprintln!(
                        "run {number}, {} on {library}: peak {}, {} per change",
                        program.name(),
                        bytes(float(run.peak)),
                        seconds(run.change_cpu)
                    );
                    if library == "kube" { measured.kube.push(run) } else { measured.listwatch.push(run) }
                }
            }
            results.programs.push(measured);
            self.output.save("migrations", &results)?;
        }
        Ok(results)
    }

    fn objects_of(&self, program: Program) -> u32 {
        if program == Program::Router { self.pods } else { self.objects }
    }

    /// Measures a program against its own server.
    fn run_once(&self, programs: &Programs, program: Program, library: &str) -> anyhow::Result<Run> {
        let server = ApiServer::start()?;
        objects::fill(&server, program, self.objects_of(program))?;
        // The list of the router on kube needs the most.
        let needed = u64::from(self.pods) * 350_000;
        ensure!(program != Program::Router || available_memory()? > needed, "{} are needed", bytes(float(needed)));
        let keys = objects::keys(&server, program);
        let mut command = Command::new(programs.rust.join("migrated"));
        command.args([program.name(), library, &server.url, &keys.len().to_string()]);
        let mut process = Process::start(command)?;
        let _: String = process.message()?;
        let proc = process.proc()?;
        let resident = || anyhow::Ok(proc.status()?.vmrss.context("/proc has no VmRSS")? * 1024);
        let total = || process::cpu(&proc).map(|(user, system)| user + system);
        let before = resident()?;
        process.go()?;
        let _: String = process.message()?;
        rest(total)?;
        let (sync_cpu, sync_peak) = (total()?, process::peak(&proc)?);
        thread::sleep(Duration::from_secs(1));
        let held = resident()?.saturating_sub(before);

        let start = total()?;
        let (mut rng, began, changes) = (Rng::with_seed(1), Instant::now(), self.rate * self.seconds);
        for number in 0..changes {
            let due = Duration::from_secs(1) * number / self.rate;
            thread::sleep(due.saturating_sub(began.elapsed()));
            objects::change(&server, program, &keys, &mut rng);
        }
        rest(total)?;
        let changed = total()? - start;
        let peak = process::peak(&proc)?;
        check(&server, program, &mut process)?;
        Ok(Run { sync_cpu, sync_peak, peak, held, change_cpu: changed / f64::from(changes) })
    }
}

/// Waits until the program has been idle for a second: it takes at most a hundredth of a core.
fn rest(total: impl Fn() -> anyhow::Result<f64>) -> anyhow::Result<()> {
    let mut last = total()?;
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = total()?;
        if now - last <= 0.01 {
            return Ok(());
        }
        last = now;
    }
}

/// Checks that the program ends up with the state of the server. The router on kube does after its next list.
fn check(server: &ApiServer, program: Program, process: &mut Process) -> anyhow::Result<()> {
    let text =
        |object: &serde_json::Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mut expected = State::default();
    match program {
        Program::Router => {
            for pod in server.list("pods") {
                let Some(endpoint) = objects::endpoint_of(&pod) else { continue };
                expected.items += 1;
                add_key(&mut expected.hash, &text(&pod, "namespace"), &text(&pod, "name"), &endpoint);
            }
        }
        Program::Operator => {
            for (app, deployment) in server.list("webapps").zip(server.list("deployments")) {
                let (found, ready) = (&app["status"]["readyReplicas"], &deployment["status"]["readyReplicas"]);
                ensure!(found == ready, "{} has {found} ready replicas, expected {ready}", text(&app, "name"));
            }
        }
        Program::Policies => {
            for plural in ["configmaps", "namespaces", "services", "deployments"] {
                for object in server.list(plural) {
                    let [namespace, name, version] =
                        ["namespace", "name", "resourceVersion"].map(|field| text(&object, field));
                    expected.items += 1;
                    add_key(&mut expected.hash, &namespace, &name, &version);
                }
            }
        }
    }
    follow::wait_for(process, (expected.items, expected.hash)).map(drop)
}

/// Counts the lines that a migration changes, by `diff`.
fn lines(program: Program) -> anyhow::Result<Lines> {
    let directory = Path::new(HERE).join("src/migrations").join(program.name());
    let length = |name: &str| anyhow::Ok(std::fs::read_to_string(directory.join(name))?.lines().count());
    let shared = length("mod.rs")?;
    let diff = Command::new("diff").current_dir(&directory).args(["with_kube.rs", "with_listwatch.rs"]).output()?;
    let diff = String::from_utf8_lossy(&diff.stdout);
    let starting = |with: char| diff.lines().filter(|line| line.starts_with(with)).count();
    Ok(Lines {
        kube: shared + length("with_kube.rs")?,
        listwatch: shared + length("with_listwatch.rs")?,
        removed: starting('<'),
        added: starting('>'),
    })
}

fn tables(results: &Results) -> String {
    let Results { rate, seconds: span, runs, cores, versions, programs } = results;
    let mut out = format!(
        "{} changes a second for {span} s, medians of {runs} runs, {cores} cores.\n\n{versions}.\n\n\
         | program | objects | lines | removed, added | peak until synced | held | peak with changes | CPU to sync | CPU per change |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        count(*rate),
    );
    for Measured { program, objects, lines, kube, listwatch } in programs {
        for (library, runs) in [("kube", kube), ("listwatch", listwatch)] {
            let of = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
            let (total, changed) = if library == "kube" {
                (lines.kube, "—".to_owned())
            } else {
                (lines.listwatch, format!("{}, {}", lines.removed, lines.added))
            };
            out += &format!(
                "| {program}, {library} | {} | {total} | {changed} | {} | {} | {} | {} | {} |\n",
                count(*objects),
                bytes(of(|run| float(run.sync_peak))),
                bytes(of(|run| float(run.held))),
                bytes(of(|run| float(run.peak))),
                seconds(of(|run| run.sync_cpu)),
                seconds(of(|run| run.change_cpu)),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cells of the row whose first cell begins with this text.
    fn cells<'t>(text: &'t str, first: &str) -> Vec<&'t str> {
        let row = text.lines().find(|line| line.starts_with(&format!("| {first}"))).expect("a row");
        row.split('|').map(str::trim).skip(1).collect()
    }

    #[test]
    fn published_lines_are_those_of_the_sources() {
        let (results, guide) = (include_str!("../migrations.md"), include_str!("../../../crates/kube/guide.md"));
        for program in Program::ALL {
            let Lines { kube, listwatch, removed, added } = lines(program).expect("diff runs");
            let (name, changed) = (program.name(), format!("{removed}, {added}"));
            assert_eq!(cells(results, &format!("{name}, kube"))[2], kube.to_string(), "{name}");
            assert_eq!(cells(results, &format!("{name}, listwatch"))[2..4], [&listwatch.to_string(), &changed]);
            assert_eq!(cells(guide, &format!("{name}, "))[1..3], [&kube.to_string(), &changed]);
        }
    }
}
