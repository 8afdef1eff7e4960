//! The inputs of a fuzz target, for tests on stable Rust: the corpus, which is one archive, and the regressions, which
//! are files.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use tar::Archive;

/// Returns the name and the bytes of each input of the target, in the order of names. `fuzz` is the folder of the fuzz
/// targets.
pub fn inputs(fuzz: &Path, target: &str) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    let file = File::open(fuzz.join("corpus.tar.gz")).expect("the corpus");
    for entry in Archive::new(GzDecoder::new(file)).entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").into_owned();
        if path.starts_with(target) && entry.header().entry_type().is_file() {
            let mut data = Vec::new();
            entry.read_to_end(&mut data).expect("the bytes of the entry");
            inputs.push((path.display().to_string(), data));
        }
    }
    assert!(inputs.len() > 10, "the corpus of {target} is missing");
    for entry in fs::read_dir(fuzz.join("regressions").join(target)).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        inputs.push((path.display().to_string(), fs::read(&path).expect("a regression")));
    }
    inputs.sort();
    inputs
}
