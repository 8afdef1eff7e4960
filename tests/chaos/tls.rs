//! A TLS stream that ends without `close_notify` may be truncated.

use listwatch::client::Config;
use listwatch_testserver::{RawAnswer, RawEnd, RawServer, TOKEN};

use crate::{BROKEN, INCOMPLETE, Whole, alone, client_of, elsewhere, framed, list};

#[test]
fn tls_without_close_notify_ends_only_bodies_of_known_length() {
    alone(async {
        let whole = Whole::small();
        for (framing, cut, end, expected) in [
            ("length", 0, RawEnd::CloseWithoutNotify, &["complete"][..]),
            ("chunked", 0, RawEnd::CloseWithoutNotify, &["complete"]),
            ("until the end", 0, RawEnd::Close, &["complete"]),
            // An attacker could have truncated the body here.
            ("until the end", 0, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("length", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("chunked", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::Close, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::Reset, &[INCOMPLETE, BROKEN]),
        ] {
            let case = format!("{framing}, {cut} bytes short, {end:?}");
            let (head, rest) = framed(framing, &whole.body);
            let bytes = [&head[..], &rest[..rest.len() - cut]].concat();
            let server = elsewhere(RawServer::start_tls([RawAnswer::new(bytes, end)])).await;
            let builder = Config::new(server.url()).bearer_token(TOKEN).ca_pem(server.ca_pem().unwrap());
            list(&case, client_of(builder), &whole).await.expect(&case, expected);
        }
    });
}
