//! Who holds the units of a pool.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Who holds the units of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A user whom a review has found.
    User(Arc<str>),
    /// The address of a reader whose user is not known yet. Readers behind a proxy or a balancer share it.
    Address(Peer),
    /// A connection on loopback, where readers have no user and share one address.
    Connection(u64),
}

/// The address of a reader's connection, which may be a proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// A host has a whole /64 of IPv6 addresses.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}
