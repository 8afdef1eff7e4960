//! Writers: the steps and rules of a write, relists, tombstones and the budget.
//!
//! | file | owns |
//! |---|---|
//! | `core` | the lock of writers, and what all handles of a store share |
//! | `transaction` | nothing: it tells a write, step by step |
//! | `writer` | the parts below |
//! | `relist`, `tombstones`, `unconfirmed`; `commit` | which states and deletions are ahead of the last list; the steps of a commit |
//! | `compressor` | the storage format, namespaces, and what is compressed how |
//! | `placement` | free slots, indexes, subscribers and counted bytes |
//! | `capacity` | the budget, and the objects that did not fit |

pub(crate) mod capacity;
pub(crate) mod commit;
pub(crate) mod compressor;
pub(crate) mod core;
pub(crate) mod origin;
pub(crate) mod placement;
pub(crate) mod relist;
pub(crate) mod tombstones;
pub(crate) mod transaction;
pub(crate) mod unconfirmed;
pub(crate) mod writer;
