//! Writes the body of a list: `cargo run --release -p listwatch-corpus -- 10000 >pods.pb`.
//!
//! With a kind it writes custom resources: `-- 10000 certificate >list.json`.

use std::io::{self, Write as _};

use listwatch_corpus::custom::CustomKind;

const USAGE: &str =
    "usage: listwatch-corpus N [certificate|revision|application], where N is the number of objects; Pods by default";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count = args.next().ok_or(USAGE)?.parse()?;
    let body = match args.next() {
        None => listwatch_corpus::pods(count),
        Some(kind) => {
            let kind = CustomKind::by_name(&kind).ok_or(USAGE)?;
            kind.list(&kind.objects(count)).into_bytes()
        }
    };
    io::stdout().write_all(&body)?;
    Ok(())
}
