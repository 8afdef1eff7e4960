//! Compression of objects: by zstd with a trained dictionary, or as the delta to a similar object.
//!
//! # Advice for changes
//!
//! An object of a compressed store has one of four forms:
//!
//! | form | body | refers to |
//! |---|---|---|
//! | encoded | the bytes as they arrived | nothing |
//! | whole | a frame of zstd without its beginning (`frame.rs`) | a [`NamespaceDictionary`] |
//! | delta | such a frame | a [`Reference`] |
//! | delta that is empty | nothing: the object is the reference, except for its identity | a [`Reference`] |
//!
//! Two steps precede the compression, and follow the decompression in the other order:
//!
//! 1. `elide.rs` replaces uid, name, parts of the name, namespace and resource version, which an entry has anyway.
//! 2. `pack.rs` replaces other uids, times and digests by their binary values.
//!
//! Samples, references and previous objects are elided and packed, too.
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
//! it has samples from more of the collection than the first namespaces of a list. Another training is due when the
//! ratio has drifted by a quarter (`training.rs`). After each training, everything whole is compressed again,
//! references too, and their deltas get the new ones: a few objects with each write (`renewal.rs`). So old dictionaries
//! are freed.
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
//! - A body can only be read with the same identity.
//! - A reference is never packed again, because its packed bytes are what its deltas refer to.
//! - The pool is the last lock of a store. A reference may be dropped under any other lock, but not under this one.
//! - The elision, the packing, the frame and the dictionaries of stored objects are part of the file format.
//!
//! # What was tried and left out
//!
//! Bytes of an object, without the entry, with the elision and before the packing, if not stated otherwise. 20,000 of a
//! kind.
//!
//! | kind | dictionary, no elision | dictionary | delta to the previous object | that, with entropy tables |
//! |---|---:|---:|---:|---:|
//! | Lease | 104 | 55 | 83 | 69 |
//! | Event | 155 | 100 | 186 | 164 |
//! | Certificate, 7 of 10 with an owner of their own | 199 | 154 | 277 | 255 |
//! | `EndpointSlice` | 894 | 844 | 877 | 871 |
//! | `ReplicaSet`, 1 to 11 of an owner | 287 | 245 | 142 | 133 |
//! | custom resource, 10 of an owner | 263 | 222 | 127 | 117 |
//!
//! - Objects without an owner have no group: a delta to any similar object is longer than with a dictionary.
//! - Without the elision, Certificates take 297 bytes as deltas to the previous object. To the first of the same shape
//!   they take 250, and 230 with one for each namespace. The shape is the keys of labels, annotations and spec, and the
//!   kind of the owner.
//! - References of other namespaces save nothing for the same reason: only objects of one owner gain by deltas.
//! - The packing saves, with the entry: of a Revision 71 bytes, a Certificate 41, another custom resource 33, an
//!   `EndpointSlice` 130, a Node 23, a Lease 13; of others up to 10.
//! - The parts of a name save, with the entry: of an `EndpointSlice` 49 bytes, a `ReplicaSet` or an Event 25, a
//!   Certificate 18, a ConfigMap 14; of a Lease nothing.
//! - Deltas of packed objects to references that are not packed save nothing: each packed text ends a match.
//! - Digests that are packed although the dictionary has them cost 300 bytes of a Node.
//! - 8 objects in a frame save 6 to 12 % of Certificates and Events. A random read decompresses all 8.
//! - Level 6 with a dictionary saves 8 % of Certificates and nothing of Events, and takes three times the time.
//! - Level 3 for deltas saves 1 to 3 %, and takes a third more time and 0.3 MB more memory. Level 7 takes three times
//!   the time.
//! - The dictionary's entropy tables before the reference save 1 to 17 % of a delta. A read then takes twice the time.
//! - A training at the end of a list, from 256 KiB on, left 0.5 MB of free heap with 2,000 Leases. It saved 0.3 MB.
//! - Levels 2 and 1 for the dictionary's tables save 13 and 16 bytes of a Lease, and cost 13 and 70 of a Node.
//! - A dictionary of 32 KiB for every kind costs 119 bytes of a Node.
//! - A table of keys without hashes saves 6 to 9 bytes, and makes a list of encoded objects 5 to 9 % slower.
//! - A first training at 1 MiB or less saves 7 bytes of a custom resource, and costs 16 of a Pod.
//! - A context of zstd that is allocated after the gap (`encoder.rs`) costs 94 bytes of a ConfigMap: small holes there.
//! - A dictionary of 512 KiB saves less than its copies take. One of 64 KiB makes whole Pods a tenth longer.
//! - One zstd context for both forms makes the read of a delta a tenth slower (`pool.rs`).

mod compression;
mod decide;
mod decoder;
mod deferred;
mod dictionary;
mod elide;
mod encoder;
mod frame;
mod group;
mod loaded;
mod pack;
mod pool;
mod renewal;
mod training;

pub(crate) use self::compression::{CompressInput, Compression, CompressionMemory, EncodeOutcome, RecompressedWhole};
pub(crate) use self::decoder::{CompressedForm, CompressedObject, Decoder};
pub(crate) use self::dictionary::{Dictionary, NamespaceDictionary, StoredWhole};
pub(crate) use self::elide::ElidedObject;
pub(crate) use self::encoder::Encoder;
pub(crate) use self::group::{MAX_GROUPED_LEN, StateId};
pub(crate) use self::loaded::LoadedDictionaries;
pub(crate) use self::pool::Reference;
pub(crate) use self::training::{FEW_SAMPLES, SampleChoice};
