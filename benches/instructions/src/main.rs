//! Counts the instructions of the hot paths (`benches/hot_paths.rs`) under valgrind, against those of `baseline.json`.
//!
//! `cargo run -p listwatch-instructions` fails when a path takes more than 10 % more, and with `--write` makes what it
//! counted the baseline. It takes Linux, valgrind, and a `gungraun-runner` of the version of gungraun in Cargo.lock:
//! `cargo install --locked gungraun-runner@VERSION`.
//!
//! Counts of one build vary by a few millionths at most, however busy the machine. Seen to move them: another folder, by
//! up to 0.3 %; inlining, by up to 2 % where a change should not matter; rustc 1.95 to 1.97, by -14 % to +0.3 %. The
//! baseline is of x86-64 with AVX2 and of glibc 2.36, whose `malloc` and `memcpy` are in it; another processor or libc
//! may need its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Value};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");

/// Counts the instructions of the hot paths under valgrind; fails when one takes over 10 % more than the baseline says.
#[derive(Parser)]
struct Args {
    /// Make these counts the baseline
    #[arg(long)]
    write: bool,
}

#[derive(Serialize, Deserialize)]
struct Counts {
    /// Other compilers make other instructions.
    rustc: String,
    /// Of one pass over the recorded items, by path.
    instructions: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    Within,
    Grown,
    Shrunk,
    /// One of the two does not have the path, or has next to nothing of it.
    Missing,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let now = Counts::measure()?;
    if args.write {
        fs::write(BASELINE, serde_json::to_string_pretty(&now)? + "\n").with_context(|| BASELINE)?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = Counts::read()?;
    if before.rustc != now.rustc {
        println!("the baseline is of {}, this is {}", before.rustc, now.rustc);
    }
    let failed = print(&before, &now);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Counts {
    fn read() -> anyhow::Result<Self> {
        let text = fs::read(BASELINE).with_context(|| BASELINE)?;
        serde_json::from_slice(&text).with_context(|| BASELINE)
    }

    fn measure() -> anyhow::Result<Self> {
        let bench = ["bench", "--locked", "--package", env!("CARGO_PKG_NAME"), "--bench", "hot_paths"];
        let summaries = output(Command::new(env!("CARGO")).args(bench).args(["--", "--output-format=json"]))?;
        let instructions = Deserializer::from_slice(&summaries)
            .into_iter::<Value>()
            .map(|summary| path_and_count(&summary?).context("an unknown form of gungraun's summaries"))
            .collect::<Result<_, _>>()?;
        let rustc = String::from_utf8(output(Command::new("rustc").arg("--version"))?)?.trim().to_owned();
        Ok(Self { rustc, instructions })
    }
}

/// What it writes to stdout.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

fn path_and_count(summary: &Value) -> Option<(String, u64)> {
    let path = format!("{}::{}", summary["function_name"].as_str()?, summary["id"].as_str()?);
    Some((path, summary.pointer("/profiles/0/data/total/metrics/Ir/values/new")?.as_u64()?))
}

/// A line for each path. Returns whether one of them is a failure.
fn print(before: &Counts, now: &Counts) -> bool {
    let mut failed = false;
    let [before, now] = [before, now].map(|counts| &counts.instructions);
    for path in before.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        let [before, now] = [before, now].map(|counts| counts.get(path).copied());
        let change = change(before, now);
        failed |= matches!(change, Change::Grown | Change::Missing);
        let [before, now] = [before, now].map(|count| count.map_or("none".into(), |count| count.to_string()));
        let verdict = match change {
            Change::Within => "",
            Change::Grown => "FAILED: it grew by more than 10 %",
            Change::Shrunk => "it shrank by more than 10 %: renew the baseline with --write",
            Change::Missing => "FAILED: not counted on one side",
        };
        println!("{path:40} {before:>10} before {now:>10} now  {verdict}");
    }
    failed
}

fn change(before: Option<u64>, now: Option<u64>) -> Change {
    let (Some(before), Some(now)) = (before, now) else { return Change::Missing };
    if now * 10 > before * 11 {
        Change::Grown
    } else if now * 10 < before {
        Change::Missing
    } else if now * 10 < before * 9 {
        Change::Shrunk
    } else {
        Change::Within
    }
}

#[cfg(test)]
mod tests {
    use super::Change::{Grown, Missing, Shrunk, Within};
    use super::change;

    #[test]
    fn only_a_change_of_more_than_a_tenth_counts() {
        let cases = [
            (Some(1000), Some(1100), Within),
            (Some(1000), Some(1101), Grown),
            (Some(1000), Some(900), Within),
            (Some(1000), Some(899), Shrunk),
            (Some(1000), Some(100), Shrunk),
            (Some(1000), Some(99), Missing),
            (Some(1000), None, Missing),
            (None, Some(1000), Missing),
        ];
        for (before, now, expected) in cases {
            assert_eq!(change(before, now), expected, "{before:?} {now:?}");
        }
    }
}
