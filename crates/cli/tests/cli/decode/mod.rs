//! `listwatch decode` of recorded bodies: what it prints, and how it ends.

mod errors;
mod formats;
mod selection;
mod streaming;

use std::io::Read;
use std::process::Output;

use flate2::read::MultiGzDecoder;
use prost::Message;

use crate::support::with_stdin;

pub const ONE_PAGE: &str = "warning: the body is one page of a longer list\n";

/// Decodes a body given on stdin.
pub fn decode(args: &[&str], body: &[u8]) -> Output {
    with_stdin(&[&["decode"], args].concat(), body)
}

pub fn gunzip(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(body).read_to_end(&mut plain).unwrap();
    plain
}

pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut gzipped = Vec::new();
    flate2::read::GzEncoder::new(body, flate2::Compression::fast()).read_to_end(&mut gzipped).unwrap();
    gzipped
}
