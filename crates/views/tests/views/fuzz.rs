//! Runs the fuzz target over every input of its corpus and of its regressions, on stable Rust.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::corpus;
use crate::k8s_pb::objects;
use crate::pb::KINDS;
use crate::target;

fn inputs() -> Vec<(String, Vec<u8>)> {
    corpus::inputs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz"), "views")
}

#[test]
fn views() {
    for (name, input) in inputs() {
        println!("{name}");
        target::run(&input);
    }
}

/// libFuzzer finds more, but needs a nightly toolchain.
#[test]
fn views_of_damaged_objects() {
    let seed = env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for (name, input) in inputs() {
        for _ in 0..if env::var_os("LISTWATCH_THOROUGH").is_some() { 1000 } else { 30 } {
            let mut damaged = input.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(1..damaged.len());
                match rng.u32(..4) {
                    0 => damaged[at] = rng.u8(..),
                    1 => damaged[at] ^= 1 << rng.u32(..8),
                    2 => damaged.insert(at, rng.u8(..)),
                    _ => drop(damaged.remove(at)),
                }
                if damaged.len() < 2 {
                    break;
                }
            }
            let result = catch_unwind(|| target::run(&damaged));
            assert!(result.is_ok(), "{name}, seed {seed}: {damaged:?}");
        }
    }
}

/// Writes the seeds of fuzzing to the folder `FUZZ_SEEDS`: see `fuzz/README.md`.
#[test]
#[ignore = "not a test"]
fn seeds() -> io::Result<()> {
    let to = PathBuf::from(env::var("FUZZ_SEEDS").expect("FUZZ_SEEDS is the folder to write to")).join("views");
    fs::create_dir_all(&to)?;
    let objects = objects();
    for (place, (api_version, kind)) in KINDS.iter().enumerate() {
        let of_kind = objects.get(&(api_version.to_string(), kind.to_string())).into_iter().flatten();
        for (number, object) in of_kind.filter(|object| object.len() < 4000).enumerate() {
            let seed = [&[u8::try_from(place).expect("fewer kinds than bytes")], &object[..]].concat();
            fs::write(to.join(format!("{kind}-{place}-{number}")), seed)?;
        }
    }
    Ok(())
}
