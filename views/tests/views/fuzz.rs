//! Runs the fuzz target over every file of its corpus and of its regressions, on stable Rust.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::k8s_pb::objects;
use crate::pb::KINDS;
use crate::target;

#[test]
fn views() {
    let mut files = 0;
    for kind in ["corpus", "regressions"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(kind).join("views");
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target::run(&fs::read(&path).unwrap());
            files += 1;
        }
    }
    assert!(files > 10, "the corpus is missing");
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
