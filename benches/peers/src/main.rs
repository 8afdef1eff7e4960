//! Compares time and memory of this crate and of its alternatives on the same Pods, each way in its own process.
//! README.md has the results.

mod custom;
mod custom_server;
mod diverse;
mod follow;
mod migrate;
mod plot;
mod process;
mod relist;
mod report;
mod ways;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};
use procfs::Current;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use process::Run;
use report::size;
use ways::{Program, Variant, Way};

/// Before the measurements, each way lists this many Pods, to check its result and to extrapolate its memory.
const TRIAL: u32 = 5000;
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Lists repeated recorded Pods with listwatch, client-go, kube and plain prost, and compares time and memory.
///
/// The ways take turns. Each run has its own process and its own server on loopback. A run that does not read exactly
/// the Pods that were sent is an error. Ways that need more memory than is available are skipped.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,

    /// Number of Pods for the tables; each takes about 8.5 kB on the wire
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// More numbers of Pods, for the plots against N; each drawn way lists them once
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    sweep: Vec<u32>,

    /// More numbers of Pods, for tables of stores; each store is filled once
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    stores: Vec<u32>,

    /// Number of runs of each way; the tables have the medians
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Measure only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = ways::WAYS.iter().map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    /// Also measure the Rust ways with mimalloc
    #[arg(long)]
    mimalloc: bool,

    #[command(flatten)]
    output: Output,
}

/// The other comparisons.
#[derive(Subcommand)]
enum Other {
    Custom(custom::Args),
    Diverse(diverse::Args),
    Follow(follow::Args),
    Migrate(migrate::Args),
    Relist(relist::Args),
}

/// Where results come from and go to.
#[derive(clap::Args)]
struct Output {
    /// Directory for results, tables and plots
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/results"))]
    out: PathBuf,

    /// Write tables and plots from these results instead of measuring
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// The results of all runs.
#[derive(Serialize, Deserialize)]
struct Results {
    /// The number of Pods of the tables.
    pods: u32,
    /// The numbers of Pods of the additional tables of stores.
    stores: Vec<u32>,
    cores: usize,
    /// The versions of the compared libraries.
    versions: String,
    points: Vec<Point>,
    skipped: Vec<String>,
}

/// The runs of a way with one number of Pods.
#[derive(Serialize, Deserialize)]
struct Point {
    way: String,
    pods: u32,
    runs: Vec<Run>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match &args.other {
        Some(Other::Custom(args)) => return args.run(),
        Some(Other::Diverse(args)) => return args.run(),
        Some(Other::Follow(args)) => return args.run(),
        Some(Other::Migrate(args)) => return args.run(),
        Some(Other::Relist(args)) => return args.run(),
        None => {}
    }
    let results = args.output.write("results", || measure(&args), report::tables)?;
    plot::write(&results, &args.output.out)
}

impl Output {
    /// Measures or reads results, and writes them and their tables under this name.
    fn write<R: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        measure: impl FnOnce() -> anyhow::Result<R>,
        tables: fn(&R) -> String,
    ) -> anyhow::Result<R> {
        fs::create_dir_all(&self.out)?;
        let results = match &self.from {
            Some(file) => serde_json::from_slice(&fs::read(file)?)?,
            None => measure()?,
        };
        self.save(name, &results)?;
        let tables = tables(&results);
        fs::write(self.out.join(format!("{name}.md")), &tables)?;
        println!("{tables}");
        Ok(results)
    }

    fn save(&self, name: &str, results: &impl Serialize) -> anyhow::Result<()> {
        Ok(fs::write(self.out.join(format!("{name}.json")), serde_json::to_vec(results)?)?)
    }
}

fn measure(args: &Args) -> anyhow::Result<Results> {
    let programs = Programs::build()?;
    let variants = Variant::all(args.mimalloc)
        .filter(|variant| args.only.is_empty() || args.only.iter().any(|id| id == variant.way.id))
        .filter(|variant| variant.way.program == Program::Rust || programs.go.is_some());
    let mut results = Results {
        pods: args.pods,
        stores: args.stores.iter().copied().filter(|pods| *pods != args.pods).collect(),
        cores: std::thread::available_parallelism()?.get(),
        versions: programs.versions()?,
        points: Vec::new(),
        skipped: Vec::new(),
    };

    // The memory of a way is extrapolated from its last run, which had fewer Pods.
    let mut fewer = Vec::new();
    for variant in variants {
        eprintln!("{TRIAL} Pods, trial run: {}", variant.name());
        fewer.push((variant, TRIAL, programs.run(variant, TRIAL)?.peak));
    }
    let numbers: BTreeSet<_> = args.sweep.iter().chain(&args.stores).copied().chain([args.pods]).collect();
    for pods in numbers {
        let of_tables = pods == args.pods;
        let runs = if of_tables { args.runs } else { 1 };
        let mut turns = Vec::new();
        let (of_plots, of_stores) = (args.sweep.contains(&pods), args.stores.contains(&pods));
        let is_listed =
            |variant: Variant| of_tables || (of_plots && variant.is_drawn()) || (of_stores && variant.is_store());
        for (variant, fewer, peak) in fewer.iter_mut().filter(|(variant, ..)| is_listed(*variant)) {
            let needed = *peak * u64::from(pods) / u64::from(*fewer) / 10 * 11;
            let available = available_memory()?;
            if needed > available {
                let (name, needed, available) = (variant.name(), size(needed), size(available));
                results.skipped.push(format!("{name}: {pods} Pods need about {needed}, {available} are available"));
            } else {
                turns.push((*variant, fewer, peak, Vec::new()));
            }
        }
        for number in 1..=runs {
            for (variant, fewer, peak, done) in &mut turns {
                eprintln!("{pods} Pods, run {number} of {runs}: {}", variant.name());
                let run = programs.run(*variant, pods)?;
                (**fewer, **peak) = (pods, run.peak);
                done.push(run);
            }
        }
        results.points.extend(turns.into_iter().map(|(variant, _, _, runs)| Point { way: variant.id(), pods, runs }));
        // Saved here, so that a later error does not lose them.
        args.output.save("results", &results)?;
    }
    Ok(results)
}

fn available_memory() -> anyhow::Result<u64> {
    procfs::Meminfo::current()?.mem_available.context("/proc/meminfo has no MemAvailable")
}

/// The compiled programs.
struct Programs {
    /// The directory of the Rust programs.
    rust: PathBuf,
    /// The program with client-go; `None` without Go.
    go: Option<PathBuf>,
}

impl Programs {
    fn build() -> anyhow::Result<Self> {
        ensure!(!cfg!(debug_assertions), "this is a debug build: use `cargo run --release`");
        let rust = std::env::current_exe()?.parent().context("this program has no directory")?.to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--release", "--locked", "--bins", "--manifest-path"]);
        succeed(build.arg(format!("{HERE}/Cargo.toml")))?;
        if Command::new("go").arg("version").output().is_err() {
            eprintln!("Go is not installed: client-go is left out");
            return Ok(Self { rust, go: None });
        }
        let go = rust.join("clientgo");
        succeed(Command::new("go").args(["build", "-o"]).arg(&go).arg(".").current_dir(format!("{HERE}/clientgo")))?;
        Ok(Self { rust, go: Some(go) })
    }

    /// Returns the command of a way. `rust` names the program of a way in Rust.
    fn command(&self, way: &Way, rust: &str) -> anyhow::Result<Command> {
        let mut command = match (way.program, &self.go) {
            (Program::Rust, _) => Command::new(self.rust.join(rust)),
            (Program::Go | Program::GoWithoutWatchList, Some(go)) => Command::new(go),
            (Program::Go | Program::GoWithoutWatchList, None) => bail!("Go is not installed"),
            (Program::Python, _) => {
                let mut python = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
                python.arg(format!("{HERE}/python/client.py"));
                return Ok(python);
            }
            (Program::Kubectl, _) => return Ok(kubectl()),
        };
        command.arg(way.argument);
        if way.program == Program::GoWithoutWatchList {
            command.env("KUBE_FEATURE_WatchListClient", "false");
        }
        Ok(command)
    }

    fn run(&self, variant: Variant, pods: u32) -> anyhow::Result<Run> {
        let Variant { way, mimalloc } = variant;
        let mut server = Command::new(self.rust.join("server"));
        server.args([&pods.to_string(), "uniform"]);
        let client = self.command(way, if mimalloc { "client-mimalloc" } else { "client" })?;
        process::measure(server, client, pods).with_context(|| format!("{}, {pods} Pods", variant.name()))
    }

    /// Returns the versions in the lock files.
    fn versions(&self) -> anyhow::Result<String> {
        let lock = fs::read_to_string(format!("{HERE}/Cargo.lock"))?;
        let rust = ["kube", "reqwest", "prost", "k8s-pb", "k8s-openapi"].map(|name| {
            let rest = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).map_or("", |(_, rest)| rest);
            format!("{name} {}", rest.split('"').next().unwrap_or_default())
        });
        let mut versions = rust.join(", ");
        if self.go.is_some() {
            let go_mod = fs::read_to_string(format!("{HERE}/clientgo/go.mod"))?;
            let client_go = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/client-go v"));
            let go = Command::new("go").args(["env", "GOVERSION"]).output()?.stdout;
            let go = String::from_utf8_lossy(&go);
            versions += &format!(", client-go {} ({})", client_go.unwrap_or_default(), go.trim());
        }
        Ok(versions)
    }
}

/// Returns the command `kubectl`, or what the variable `KUBECTL` names.
fn kubectl() -> Command {
    Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
