//! The one rule by which readers share what a mirror has little of.

mod holder;
mod pool;

pub(crate) use self::holder::{Holder, Peer};
pub(crate) use self::pool::{FairPool, PoolFull, PoolPermit};
