//! Searches what it reads, the output of tests, for the token of the tests; fails when it is there.

use std::io::{self, Read};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    Ok(match listwatch_testserver::leak(&text) {
        None => ExitCode::SUCCESS,
        Some(place) => {
            eprintln!("the token shows: {place}");
            ExitCode::FAILURE
        }
    })
}
