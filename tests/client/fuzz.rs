//! Runs the fuzz targets over every input of the corpus and of the regressions, on stable Rust.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use listwatch::{Event, ListDecoder};

#[path = "../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use corpus::inputs;

/// Longer seeds are slow, and find nothing that shorter seeds do not find.
const LONGEST: usize = 8 << 10;

/// Runs a target over its inputs; a failure names the input.
fn replay(target: &str, run: fn(&[u8])) {
    for (name, data) in inputs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target) {
        assert!(catch_unwind(|| run(&data)).is_ok(), "{name}");
    }
}

#[test]
fn list_decode() {
    replay("list_decode", targets::list_decode::run);
}

#[test]
fn list_differential() {
    replay("list_differential", targets::list_differential::run);
}

#[test]
fn json_list() {
    replay("json_list", targets::json_list::run);
}

#[test]
fn watch_decode() {
    replay("watch_decode", targets::watch_decode::run);
}

#[test]
fn meta_view() {
    replay("meta_view", targets::meta_view::run);
}

#[test]
fn projection() {
    replay("projection", targets::projection::run);
}

#[test]
fn selectors() {
    replay("selectors", targets::selectors::run);
}

#[test]
fn http_error() {
    replay("http_error", targets::http_error::run);
}

/// Writes the seeds of fuzzing, made from `fixtures/`, to the folder `FUZZ_SEEDS`: see `fuzz/README.md`.
#[test]
#[ignore = "not a test"]
fn seeds() -> io::Result<()> {
    let to = PathBuf::from(env::var("FUZZ_SEEDS").expect("FUZZ_SEEDS is the folder to write to"));
    let mut heads = BTreeMap::new();
    let mut bodies = BTreeMap::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"))? {
        let path = entry?.path();
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("head") => drop(heads.insert(name, fs::read(path)?)),
            Some("pb" | "json" | "cbor" | "body") => {
                let body = fs::read(&path)?;
                bodies.insert(path, body);
            }
            _ => {}
        }
    }
    for (path, body) in &bodies {
        let stem = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let file = path.file_name().expect("a file").to_string_lossy().into_owned();
        let write = |target: &str, data: &[u8]| write(&to.join(target), &file, data);
        // The bytes after the body select its chunks and limits.
        write("list_decode", &[body, &b"\x03\x10\x02\x00\x00\x00"[..]].concat())?;
        write("json_list", &[body, &b"\x10"[..]].concat())?;
        write("watch_decode", &[body, &b"\x03\x10\x02\x00"[..]].concat())?;
        if let Some(head) = heads.get(&stem) {
            write("http_error", &[head, &body[..]].concat())?;
        }
        if let Some(item) = shortest_item(body) {
            write("meta_view", &item)?;
            let rules = b"-1.17 -1.12[\"kubectl.kubernetes.io/last-applied-configuration\"] -3|";
            write("projection", &[rules, &item[..]].concat())?;
            write(
                "selectors",
                &[b"app in (web,db),!old\nstatus.phase=Running,metadata.name!=a\n", &item[..]].concat(),
            )?;
        }
    }
    for (number, rules) in
        ["+1.1", "+1.11[\"app\"] +2.10", "+2.2 -2.2.2 -2.2.1", "-1.11[\"a\"] -1.11.2"].iter().enumerate()
    {
        let object =
            b"\x0a\x12\x0a\x01n\x5a\x06\x0a\x01a\x12\x011\x5a\x05\x0a\x03app\x12\x08\x12\x06\x0a\x01x\x12\x01y";
        write(&to.join("projection"), &format!("rules-{number}"), &[rules.as_bytes(), b"|", object].concat())?;
    }
    let selectors = [
        "a=b",
        "a==b,c!=d",
        "a in (x, y), b notin (z)",
        "!a",
        "a>1,b<2",
        "example.com/a=b",
        "in in (in)",
        "=",
        "metadata.name=a\\,b\\=c\\\\",
        "a",
    ];
    for (number, text) in selectors.iter().enumerate() {
        write(&to.join("selectors"), &format!("text-{number}"), format!("{text}\n{text}\n").as_bytes())?;
    }
    // Its metadata has every field, unlike any short recorded list.
    let list = br#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3,"shardInfo":{"selector":"s"}},"items":[{"a":[1]},null]}"#;
    write(&to.join("json_list"), "list-meta", &[&list[..], b"\x10"].concat())?;
    for number in 0..64 {
        write(&to.join("list_differential"), &format!("{number}"), &noise(number, 16 << (number % 6)))?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, data: &[u8]) -> io::Result<()> {
    if data.len() > LONGEST {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), data)
}

/// Returns the shortest item of a list, or `None` if the body has no items.
fn shortest_item(body: &[u8]) -> Option<Vec<u8>> {
    let (mut decoder, mut rest, mut items) = (ListDecoder::new(), body, Vec::new());
    while let Ok(Some(event)) = decoder.decode(&mut rest) {
        if let Event::Item(item) = event {
            items.push(item.bytes().to_vec());
        }
    }
    items.into_iter().min_by_key(Vec::len)
}

/// Returns arbitrary bytes, the same for the same seed: a target generates a list from them.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(length)
    .collect()
}
