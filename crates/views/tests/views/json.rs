//! Every accessor reads the value that Go prints in JSON: objects of every kind, from empty to full, and Go's own test
//! objects of every release. The program in `e2e/apiserver/fields` writes the objects, and `tests/core/json_form.rs` of
//! the library pins the JSON.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;

use flate2::read::GzDecoder;
use listwatch::{ItemError, ListReader};

use crate::generated::walk;
use crate::node::parse;

/// Returns the bodies in a file of the library's tests, which has the length before each body.
pub fn bodies(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/../../tests/core/json_form/{name}.pb.gz", env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut all).unwrap();
    let (mut rest, mut bodies) = (&all[..], Vec::new());
    while let Some((len, after)) = rest.split_first_chunk() {
        let (body, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        bodies.push(body.to_vec());
        rest = after;
    }
    bodies
}

fn compare(bodies: &[Vec<u8>]) -> (usize, HashSet<String>) {
    let (mut items, mut kinds) = (0, HashSet::new());
    for body in bodies {
        for item in ListReader::with(&body[..], |item| {
            let (api_version, kind) = (&item.type_meta().api_version, item.type_meta().item_kind());
            let name = format!("{api_version} {kind}");
            // The recorded objects include kinds that no server lists.
            let Some(node) = walk(api_version, kind, item) else { return Ok(()) };
            let node = node?;
            let mut json = Vec::new();
            item.to_json(&mut json)?;
            node.compare(&parse(&json), &name);
            kinds.insert(name);
            Ok::<_, ItemError>(())
        }) {
            item.unwrap();
            items += 1;
        }
    }
    (items, kinds)
}

#[test]
fn objects_of_every_kind_equal_gos_json() {
    let (items, kinds) = compare(&bodies("filled"));
    assert!(items > 600 && kinds.len() > 80, "{items} {}", kinds.len());
}

#[test]
fn gos_own_test_objects_of_every_release_equal_gos_json() {
    let (items, kinds) = compare(&bodies("releases"));
    assert!(items > 150 && kinds.len() > 75, "{items} {}", kinds.len());
}

#[test]
fn recorded_objects_equal_gos_json() {
    let lists = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).unwrap();
    let bodies = lists.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let mut lists: Vec<Vec<u8>> = bodies.filter(|body| body.starts_with(b"k8s\0")).collect();
    lists.retain(|body| ListReader::new::<[u8]>(&body[..]).all(|item| item.is_ok()));
    let (items, _) = compare(&lists);
    assert!(items > 500, "{items}");
}
