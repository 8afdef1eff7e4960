//! Measures how fast lists are synthesized: 50,000 Pods, read in chunks of 4 KiB, without a server.
//! `cargo run --release -p listwatch-testserver --example speed`

use std::error::Error;
use std::io::Read;
use std::time::Instant;

use listwatch_testserver::{Synthesizer, recorded_pods};

fn main() -> Result<(), Box<dyn Error>> {
    let pods = Synthesizer::new(&recorded_pods(), 50_000)?;
    let (mut reader, mut chunk) = (pods.reader(), [0; 4096]);
    let start = Instant::now();
    while reader.read(&mut chunk)? > 0 {}
    let micros = start.elapsed().as_micros();
    println!("{} bytes in {micros} µs, {} MB/s", pods.len(), u128::from(pods.len()) / micros);
    Ok(())
}
