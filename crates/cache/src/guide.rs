//! The guide: one chapter for each task, and for what lists and watches cost.

#[doc = include_str!("../guide/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../guide/listing.md")]
pub mod listing {}

#[doc = include_str!("../guide/watching.md")]
pub mod watching {}

#[doc = include_str!("../guide/caching.md")]
pub mod caching {}

#[doc = include_str!("../guide/partial_decoding.md")]
// The crate listwatch-views compiles this section.
#[cfg_attr(not(doctest), doc = include_str!("../guide/views.md"))]
pub mod partial_decoding {}

#[doc = include_str!("../guide/custom_resources.md")]
pub mod custom_resources {}

#[doc = include_str!("../guide/performance.md")]
pub mod performance {}

#[doc = include_str!("../guide/api_server_load.md")]
pub mod api_server_load {}

#[doc = include_str!("../guide/failure_modes.md")]
pub mod failure_modes {}
