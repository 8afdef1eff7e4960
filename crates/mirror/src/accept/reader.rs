//! The reader at the other end of a connection.

use std::net::SocketAddr;

use super::connections::Connection;
use crate::fairness::Peer;

/// The reader at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// True if the reader is on the host of the mirror. Its responses are not compressed.
    pub(crate) is_on_this_host: bool,
    pub(crate) peer: Peer,
    pub(crate) connection: Connection,
}

impl Reader {
    /// Creates the reader of a connection with these two addresses.
    pub(crate) fn new(remote: SocketAddr, local: SocketAddr, connection: Connection) -> Self {
        Self { is_on_this_host: is_same_host(remote, local), peer: Peer::new(remote.ip()), connection }
    }

    /// Creates a reader whose connection has no place.
    #[cfg(test)]
    pub(crate) fn of_test(is_on_this_host: bool, address: [u8; 4]) -> Self {
        let peer = Peer::new(address.into());
        Self { is_on_this_host, peer, connection: Connection::of_peer(peer) }
    }
}

/// Returns true if the reader is on the host of the mirror, given the two addresses of its connection.
fn is_same_host(reader: SocketAddr, own: SocketAddr) -> bool {
    let [reader, own] = [reader, own].map(|address| address.ip().to_canonical());
    reader.is_loopback() || reader == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_readers_on_this_host() {
        for (reader, own, expected) in [
            ("127.0.0.2:5", "127.0.0.1:1", true),
            ("[::1]:5", "[::1]:1", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:5", "10.0.0.1:1", true),
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:1", true),
            ("10.0.0.2:5", "10.0.0.1:5", false),
            ("[2001:db8::2]:5", "[2001:db8::1]:5", false),
            ("0.0.0.0:5", "10.0.0.1:5", false),
        ] {
            assert_eq!(is_same_host(reader.parse().unwrap(), own.parse().unwrap()), expected, "{reader} {own}");
        }
    }
}
