//! Compression of objects: by zstd with a trained dictionary, or as the delta to a similar object.
//!
//! # Advice for changes
//!
//! An object of a compressed store has one of four forms:
//!
//! | form | body | refers to |
//! |---|---|---|
//! | encoded | the bytes as they arrived | nothing |
//! | whole | a frame of zstd without its beginning (`frame.rs`) | a [`NamespaceDictionary`](dictionary::NamespaceDictionary) |
//! | delta | such a frame | a [`Reference`](pool::Reference) |
//! | delta that is empty | nothing: the object is the reference, except for its identity | a [`Reference`](pool::Reference) |
//!
//! Two steps precede the compression, and follow the decompression in the opposite order:
//!
//! 1. `elide.rs` replaces uid, name, parts of the name, namespace and resource version, which an entry contains anyway.
//! 2. `pack.rs` replaces other uids, times and digests by their binary values.
//!
//! Samples, references and previous objects are elided and packed too.
//!
//! A delta group contains the objects of one namespace and one controlling owner, or else of one `generateName`
//! (`group.rs`). Its first object is stored whole, and is the *candidate*. Once another object resembles the candidate,
//! its frame becomes the reference, a separate allocation, and the candidate becomes an empty delta. Deltas hold the
//! reference, and the last of them frees it.
//!
//! [`Compression::encode`](compression::Compression::encode) decides between delta and whole, and names the result. The
//! rule of the decision is in `decide.rs`, which sees only lengths. Three events make a new object the next candidate:
//!
//! - It differs from the reference. After three such objects in a row, 1 to 128 objects skip the comparison.
//! - The reference has no other object, or the candidate was deleted.
//! - A trial shows that the reference is outdated, because the delta to the previous object is a quarter shorter.
//!   Trials follow after 1, 2, 4, 8 and then each 16 objects, because a trial costs a compression.
//!
//! Objects stored whole use no dictionary at first. The first training is due once they take 1.5 MiB: it then pays off,
//! and has samples from more of the collection than the first namespaces of a list. Another training is due when the
//! ratio has drifted by a quarter (`training.rs`). After each training, everything whole is compressed again, including
//! references, whose deltas then use the new ones: a few objects with each write (`renewal.rs`). Old dictionaries are
//! thereby freed.
//!
//! A changed object stays encoded until 64 have changed (`write/compressor.rs`), because compressing one at a time
//! would load half a megabyte of zstd's tables into the processor's caches each time.
//!
//! # Invariants
//!
//! - This folder knows the store only as [`StoredStates`](compression::StoredStates), in which it looks candidates up.
//!   The writer receives an outcome, and changes entries (`write/compressor.rs`).
//! - A reference has one namespace, from which a delta takes its own.
//! - A wrong guess costs only memory: a hash that two groups share, or a new state at the address of a candidate.
//! - A body can only be read with the same identity.
//! - A reference is never packed again, because its packed bytes are what its deltas refer to.
//! - The pool is the last lock of a store. A reference may be dropped under any other lock, but not under this one.
//! - The elision, the packing, the frame and the dictionaries of stored objects are part of the file format.
//!
//! `docs/design/compressed-store.md` shows the whole design with pictures, and what was tried and left out.

pub(crate) mod compression;
mod decide;
pub(crate) mod decoder;
pub(crate) mod dictionary;
pub(crate) mod elide;
pub(crate) mod encoder;
mod frame;
pub(crate) mod group;
mod pack;
pub(crate) mod pool;
mod renewal;
pub(crate) mod states;
pub(crate) mod training;
