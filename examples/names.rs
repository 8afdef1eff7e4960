//! Prints the names in a saved body: `cargo run --example names [FILE]`.

use std::env::args;
use std::error::Error;
use std::fs::File;

use listwatch::{ItemError, ListReader};

fn main() -> Result<(), Box<dyn Error>> {
    let file = File::open(args().nth(1).unwrap_or_else(|| "fixtures/pods.pb".to_owned()))?;
    let mut names = ListReader::with(file, |item| {
        let meta = item.meta()?;
        Ok::<_, ItemError>(format!("{}/{}", meta.namespace(), meta.name()))
    });
    for name in &mut names {
        println!("{}", name?);
    }
    let end = names.end().expect("a list that ends without an error is complete");
    eprintln!("{} items at version {}", end.items, end.list_meta.resource_version);
    Ok(())
}
