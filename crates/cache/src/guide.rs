//! Compiles the examples of `docs/guide`, which GitHub shows.

#[doc = include_str!("../../../docs/guide/choosing.md")]
mod choosing {}

#[doc = include_str!("../../../docs/guide/listing.md")]
mod listing {}

#[doc = include_str!("../../../docs/guide/watching.md")]
mod watching {}

#[doc = include_str!("../../../docs/guide/caching.md")]
mod caching {}

#[doc = include_str!("../../../docs/guide/partial_decoding.md")]
mod partial_decoding {}

#[doc = include_str!("../../../docs/guide/custom_resources.md")]
mod custom_resources {}

#[doc = include_str!("../../../docs/guide/performance.md")]
mod performance {}
