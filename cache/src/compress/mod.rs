//! Compression of objects: by zstd with a trained dictionary, or as the delta to a similar object.
//!
//! # Advice for changes
//!
//! An object of a compressed store has one of four forms:
//!
//! | form | body | refers to |
//! |---|---|---|
//! | encoded | the bytes as they arrived | nothing |
//! | whole | a frame of zstd | a [`NamespaceDictionary`] |
//! | delta | a frame of zstd without its beginning (`frame.rs`) | a [`Reference`] |
//! | delta that is empty | nothing: the object is the reference | a [`Reference`] |
//!
//! A delta group has the objects of one namespace and one controlling owner, or else of one `generateName`
//! (`group.rs`). Its first object is stored whole, and is the *candidate*. Once another object resembles the candidate,
//! its frame becomes the reference, an allocation of its own. The candidate becomes an empty delta. Deltas hold the
//! reference, and the last frees it.
//!
//! [`Compression::encode`] decides between delta and whole, and names the result ([`EncodeOutcome`]). The rule of the
//! decision is `decide.rs`, which sees only lengths. Three events make a new object the next candidate:
//!
//! - It differs from the reference. After three such objects in a row, 1 to 128 objects skip the comparison.
//! - The reference has no other object, or the candidate was deleted.
//! - A trial shows that the reference is outdated: the delta to the previous object is a quarter shorter. Trials follow
//!   after 1, 2, 4, 8 and then each 16 objects, because a trial costs a compression.
//!
//! Objects stored whole use no dictionary at first. The first training is due once they take 1.5 MiB. Then it pays, and
//! it has samples from more of the collection than the first namespaces of a list. Everything whole is compressed
//! again, and references change their frames in place, because deltas point to them. Another training is due when the
//! ratio has drifted by a quarter (`training.rs`). It compresses nothing again.
//!
//! A changed object waits encoded until 64 have changed (`deferred.rs`). Compressing one at a time loads half a
//! megabyte of zstd's tables into the processor's caches each time.
//!
//! # Invariants
//!
//! - This folder never sees the store. The writer looks candidates up, gets an outcome, and changes entries
//!   (`write/compression.rs`).
//! - A reference has one namespace, so a delta has its namespace from there.
//! - A wrong guess costs memory only: a hash that two groups share, or a new state at the address of a candidate.
//! - The suffix of a delta's dictionary is name, uid and resource version. A delta can only be read with the same three
//!   texts.
//! - The pool is the last lock of a store. A reference may be dropped under any other lock, but not under this one.
//! - Level, dictionary and frame of stored objects are part of the file format.
//!
//! # What was tried and left out
//!
//! - Level 3 for deltas saves 1 to 3 %, and takes a third more time and 0.3 MB more memory. Level 7 takes three times
//!   the time.
//! - The dictionary's entropy tables before the reference save a tenth of a delta. A read then takes twice the time.
//! - A dictionary of 512 KiB saves less than its copies take. One of 64 KiB makes whole Pods a tenth longer.
//! - One zstd context for both forms makes the read of a delta a tenth slower (`pool.rs`).

mod compression;
mod decide;
mod decoder;
mod deferred;
mod dictionary;
mod encoder;
mod frame;
mod group;
mod loaded;
mod pool;
mod training;

pub(crate) use self::compression::{
    CompressInput, Compression, CompressionMemory, EncodeOutcome, Recompressed, TrainingOutcome,
};
pub(crate) use self::decoder::{CompressedObject, Decoder, StoredWhole};
pub(crate) use self::dictionary::{Dictionary, NamespaceDictionary};
pub(crate) use self::encoder::Encoder;
pub(crate) use self::group::{MAX_GROUPED_LEN, StateId};
pub(crate) use self::loaded::LoadedDictionaries;
pub(crate) use self::pool::Reference;
pub(crate) use self::training::{FEW_SAMPLES, is_sample};
