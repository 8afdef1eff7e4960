//! A filter that drops items by text that they do not contain.

use memchr::memchr;
use memchr::memmem::Finder;

use super::ItemRef;
use crate::wire::Encoding;

/// A filter that skips items which cannot match, by text that a match must contain.
///
/// It searches the bytes of the whole item, at several GB/s: it pays before an item is decoded, rarely before its
/// [`MetaView`](super::MetaView) is read. A match means only that the text occurs somewhere in the item. No match means that no
/// string or bytes field of the item contains it. An item in JSON also matches if it has a backslash, because escapes may
/// hide the text; bytes fields are base64 in JSON, and are not decoded for the search.
///
/// ```
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::{ItemError, ListReader, Prefilter};
///
/// # let file = &include_bytes!("../../fixtures/pods.pb")[..];
/// let suspects = Prefilter::new(["ghcr.io/", "privileged"]);
/// let pods = ListReader::with(file, |item| match suspects.matches(&item) {
///     true => item.decode::<Pod>().map(Some),
///     false => Ok(None),
/// });
/// # let mut passed = 0;
/// for pod in pods {
///     let Some(pod) = pod? else { continue };
///     println!("{:?}", pod.spec);
/// #   passed += 1;
/// }
/// # assert!(passed < 120);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Prefilter {
    /// One needle of each group must match.
    groups: Vec<Vec<Finder<'static>>>,
}

impl Prefilter {
    /// Creates a filter that all of these needles must match. Without needles every item matches.
    #[must_use]
    pub fn new<N: AsRef<[u8]>>(needles: impl IntoIterator<Item = N>) -> Self {
        needles.into_iter().fold(Self::default(), |prefilter, needle| prefilter.any_of([needle]))
    }

    /// Adds a group of needles: at least one of them must match. An empty group matches no item.
    #[must_use]
    pub fn any_of<N: AsRef<[u8]>>(mut self, needles: impl IntoIterator<Item = N>) -> Self {
        let finder = |needle: N| Finder::new(needle.as_ref()).into_owned();
        self.groups.push(needles.into_iter().map(finder).collect());
        self
    }

    /// Returns true if the item contains a needle of each group, or may contain it under escapes.
    #[must_use]
    pub fn matches(&self, item: &ItemRef<'_>) -> bool {
        let is_there = |needle: &Finder<'_>| needle.find(item.bytes()).is_some();
        self.groups.iter().all(|group| group.iter().any(is_there))
            || item.encoding() == Encoding::Json && memchr(b'\\', item.bytes()).is_some()
    }
}
