//! Writes the body of a list of Pods: `cargo run --release -p listwatch-corpus -- 10000 >pods.pb`.

use std::io::{self, Write as _};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).ok_or("usage: listwatch-corpus N, the number of Pods")?.parse()?;
    io::stdout().write_all(&listwatch_corpus::pods(count))?;
    Ok(())
}
