//! Searches standard input, such as the output of tests, for the token of the tests; exits with 1 if it finds the
//! token.

use std::io::{self, Read};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    Ok(match listwatch_testserver::leak(&text) {
        None => ExitCode::SUCCESS,
        Some(place) => {
            eprintln!("the token is in the input: {place}");
            ExitCode::FAILURE
        }
    })
}
