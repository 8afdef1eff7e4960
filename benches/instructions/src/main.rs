//! Counts the instructions of the hot paths (`benches/hot_paths`) under valgrind and compares them with
//! `baseline.json`.
//!
//! `cargo run -p listwatch-instructions` fails if a path takes over 10 % more instructions than the baseline; `--write`
//! makes the new counts the baseline. It needs Linux, valgrind, and a `gungraun-runner` of the version of gungraun in
//! Cargo.lock: `cargo install --locked gungraun-runner@VERSION`.
//!
//! Counts of one build vary by a few millionths at most, however busy the machine is. Other influences, as observed:
//! another folder, up to 0.3 %; inlining in unrelated changes, up to 2 %; rustc 1.95 to 1.97, -14 % to +0.3 %. The
//! baseline was counted on x86-64 with AVX2 and glibc 2.36, and includes its `malloc` and `memcpy`; another processor
//! or libc may need its own baseline.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Value};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");

/// Counts the instructions of the hot paths under valgrind; fails if a path takes over 10 % more than the baseline
#[derive(Parser)]
struct Args {
    /// Write the counts to the baseline instead of comparing them
    #[arg(long)]
    write: bool,
}

#[derive(Serialize, Deserialize)]
struct Counts {
    /// The compiler's version: other compilers generate other instructions.
    rustc: String,
    /// Instructions of one pass over the recorded items, by path.
    instructions: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    Within,
    Grown,
    Shrunk,
    /// The path is missing on one side, or its count is below a tenth of the baseline.
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
        println!("the baseline was counted with {}, this run uses {}", before.rustc, now.rustc);
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
            .map(|summary| path_and_count(&summary?).context("gungraun's summary has an unknown format"))
            .collect::<Result<_, _>>()?;
        let rustc = String::from_utf8(output(Command::new("rustc").arg("--version"))?)?.trim().to_owned();
        Ok(Self { rustc, instructions })
    }
}

/// Runs a command and returns its stdout.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

fn path_and_count(summary: &Value) -> Option<(String, u64)> {
    let path = format!("{}::{}", summary["function_name"].as_str()?, summary["id"].as_str()?);
    Some((path, summary.pointer("/profiles/0/data/total/metrics/Ir/values/new")?.as_u64()?))
}

/// Prints a line for each path. Returns true if a path failed.
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
            Change::Grown => "FAILED: over 10 % more",
            Change::Shrunk => "over 10 % fewer: update the baseline with --write",
            Change::Missing => "FAILED: missing on one side",
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
    fn reports_changes_of_more_than_a_tenth() {
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
