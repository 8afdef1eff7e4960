//! Shards, which divide a collection by the hashes of uids.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::InvalidInput;

/// One of several equal parts of a collection, chosen by a hash of each object's uid (KEP-5866).
///
/// The `Selection` of a list, a watch or a reflector may name a shard. The hash is FNV-1a with 64 bits, so an object
/// stays in its shard for its whole life. An object that is deleted and created again gets another uid, and may then be
/// in another shard. The example `shards` of `listwatch-kube` distributes shards over replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    // index < of
    index: u32,
    of: u32,
}

impl Shard {
    /// Creates shard `index` of `of`, where indexes start at 0.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] when the index is not below `of`.
    pub fn new(index: u32, of: u32) -> Result<Self, InvalidInput> {
        if index < of { Ok(Self { index, of }) } else { Err(invalid(&format!("{index}/{of}"))) }
    }

    /// Returns the hashes in this shard. Together, all shards cover the 2^64 hashes without gap or overlap.
    #[must_use]
    pub fn hashes(self) -> Range<u128> {
        let bound = |index: u128| (index << 64) / u128::from(self.of);
        let index = u128::from(self.index);
        bound(index)..bound(index + 1)
    }

    /// Returns the value of the parameter `shardSelector`, in the form that servers echo.
    #[must_use]
    pub fn selector(self) -> String {
        let Range { start, end } = self.hashes();
        format!("shardRange(object.metadata.uid, '0x{start:016x}', '0x{end:016x}')")
    }

    /// Returns true if an object with this uid is in the shard.
    #[must_use]
    pub fn contains(self, uid: &str) -> bool {
        self.hashes().contains(&u128::from(fnv_1a(uid.as_bytes())))
    }

    /// Returns true if the server restricted the list to this shard.
    ///
    /// A server that does so echoes the selector in `ListMeta.shardInfo`. A server that does not support shards echoes
    /// nothing and sends the whole collection.
    pub(crate) fn complied(self, echoed_selector: Option<&str>) -> bool {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        echoed_selector.is_some_and(|echoed| bare(echoed) == bare(&self.selector()))
    }
}

/// FNV-1a: <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes `index/of`.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Parses `index/of`.
impl FromStr for Shard {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let (index, of) = text.split_once('/').ok_or_else(|| invalid(text))?;
        let number = |digits: &str| digits.parse().map_err(|_| invalid(text));
        Self::new(number(index)?, number(of)?)
    }
}

fn invalid(text: &str) -> InvalidInput {
    InvalidInput::of("shard", text, "expected I/N with I from 0 to N-1, as in 0/3, 1/3, 2/3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_1a_matches_the_drafts_test_vectors() {
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv_1a(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn shards_cover_all_hashes_without_overlap() {
        for of in (1..=300).chain([65_535, 65_537, u32::MAX]) {
            let shard = |index| Shard::new(index, of).unwrap().hashes();
            assert_eq!(shard(0).start, 0);
            assert_eq!(shard(of - 1).end, 1 << 64);
            for index in 1..of.min(300) {
                assert_eq!(shard(index - 1).end, shard(index).start);
                assert!(!shard(index).is_empty());
            }
        }
    }

    #[test]
    fn parses_shards_and_writes_their_selectors() {
        for (shard, start, end) in [
            ("0/1", "0x0000000000000000", "0x10000000000000000"),
            ("0/2", "0x0000000000000000", "0x8000000000000000"),
            ("1/2", "0x8000000000000000", "0x10000000000000000"),
            ("1/3", "0x5555555555555555", "0xaaaaaaaaaaaaaaaa"),
            ("3/4", "0xc000000000000000", "0x10000000000000000"),
        ] {
            let parsed: Shard = shard.parse().unwrap();
            assert_eq!(parsed.to_string(), shard);
            assert_eq!(parsed.selector(), format!("shardRange(object.metadata.uid, '{start}', '{end}')"));
        }
        for bad in ["", "1", "1/1", "2/1", "0/0", "-1/2", "a/b", "1/2/3", " 0/2", "0/4294967296"] {
            let error = bad.parse::<Shard>().expect_err(bad).to_string();
            assert_eq!(error, format!("invalid shard {bad:?}: expected I/N with I from 0 to N-1, as in 0/3, 1/3, 2/3"));
        }
    }

    #[test]
    fn recognizes_the_echo_of_a_shard() {
        let shard = Shard::new(0, 2).unwrap();
        // As in fixtures/pods-shard.pb.
        let echoed = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
        let other = "shardRange(object.metadata.uid, '0x0000000000000000', '0x4000000000000000')";
        let namespace = echoed.replace("uid", "namespace");
        for (echo, complied) in [
            (Some(echoed), true),
            (Some(&*echoed.replace(' ', "")), true),
            (Some(&*echoed.replace(',', "\t,\n")), true),
            (Some(other), false),
            (Some(&*namespace), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(shard.complied(echo), complied, "{echo:?}");
        }
    }
}
