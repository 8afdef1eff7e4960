//! Content codings, as servers and proxies write them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use listwatch::client::{Error, ErrorKind, ListParams, Resource, Retry, TransportErrorKind};

use crate::support::fixture;
use crate::support::transport::{Answer, Scripted};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The number of items of a list with this body and these `Content-Encoding` headers.
async fn listed(body: &[u8], headers: &[&str], piece: usize) -> Result<usize, Error> {
    let answer = Answer::ok(body.to_vec()).pieces_of(piece);
    let server =
        Scripted::always(headers.iter().fold(answer, |answer, coding| answer.header("content-encoding", coding)));
    let client = server.client().retry(Retry::never());
    Ok(client.list::<[u8]>(&Resource::CONFIG_MAPS, &ListParams::default()).into_vec().await?.0.len())
}

#[tokio::test(start_paused = true)]
async fn reads_each_name_of_a_coding() {
    let plain = fixture("configmaps.pb");
    let gzipped = gzip(&plain);
    let members: Vec<u8> = plain.chunks(500).flat_map(gzip).collect();
    let padded = [&gzipped[..], &[0; 1000]].concat();
    let both = [&gzip(&plain[..700]), &[0; 3][..], &gzip(&plain[700..]), &[0]].concat();
    for (case, body, headers) in [
        ("none", &plain, &[][..]),
        ("identity", &plain, &["identity"]),
        ("Identity", &plain, &["Identity"]),
        ("an empty header", &plain, &[""]),
        ("an empty list", &plain, &[" , "]),
        ("gzip", &gzipped, &["gzip"]),
        ("x-gzip", &gzipped, &["x-gzip"]),
        ("GZIP", &gzipped, &["GZIP"]),
        ("gzip, identity", &gzipped, &["gzip, identity"]),
        ("members", &members, &["gzip"]),
        ("zeros after gzip", &padded, &["gzip"]),
        ("zeros between and after members", &both, &["gzip"]),
    ] {
        for piece in [1, 100, 100_000] {
            assert_eq!(listed(body, headers, piece).await.unwrap(), 13, "{case} in pieces of {piece}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn names_each_coding_that_it_cannot_read() {
    let gzipped = gzip(&fixture("configmaps.pb"));
    for (headers, expected) in [
        (&["br"][..], "cannot decompress the response: the content coding is br, not gzip or identity"),
        (&["Deflate"], "cannot decompress the response: the content coding is deflate, not gzip or identity"),
        (&["gzip,zstd"], "cannot decompress the response: the content coding is gzip, zstd, not gzip or identity"),
        (&["gzip, gzip"], "cannot decompress the response: the content coding is gzip, gzip, not gzip or identity"),
    ] {
        let error = listed(&gzipped, headers, 100_000).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_gzip_are_errors() {
    use TransportErrorKind::{Broken, Compression};

    let gzipped = gzip(&fixture("configmaps.pb"));
    let mut wrong = gzipped.clone();
    *wrong.iter_mut().nth_back(5).unwrap() ^= 1;
    for (case, body, expected) in [
        ("zeros before gzip", [&[0], &gzipped[..]].concat(), Compression),
        ("text after gzip", [&gzipped[..], b"\0\0trailing text"].concat(), Compression),
        ("a truncated second member", [&gzipped[..], &gzipped[..9]].concat(), Broken),
        ("a truncated checksum", gzipped[..gzipped.len() - 3].to_vec(), Broken),
        ("a wrong checksum", wrong, Compression),
    ] {
        for piece in [1, 100_000] {
            let error = listed(&body, &["gzip"], piece).await.unwrap_err();
            let found = match error.kind() {
                ErrorKind::Transport(cause) | ErrorKind::Incomplete { cause: Some(cause), .. } => cause.kind(),
                _ => panic!("{case}: {error}"),
            };
            assert_eq!(found, expected, "{case} in pieces of {piece}: {error}");
        }
    }
}
