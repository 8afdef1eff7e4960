//! One response of a list: its items, and the items that earlier attempts delivered.

use std::mem;

use bytes::{Buf, Bytes};
use crc32fast::Hasher;

use super::listing::Listing;
use crate::client::body;
use crate::client::error::{Error, ErrorKind};
use crate::client::params::DEFAULT_REQUEST_TIMEOUT;
use crate::client::send::Answer;
use crate::client::transport::{TransportError, TransportErrorKind};
use crate::decode::{Event, ListDecoder};
use crate::error::{DecodeError, DecodeErrorKind, ItemError, Limit};
use crate::limits::Limits;
use crate::meta::TypeMeta;
use crate::object::ItemRef;
use crate::object::shard::Shard;
use crate::wire::Encoding;

pub(super) struct Page {
    pub(super) decoder: ListDecoder,
    pub(super) answer: Answer,
    /// The rest of the last chunk, which is not decoded yet.
    pub(super) chunk: Bytes,
    /// The shard that the client selects, unless the server reports that it did.
    pub(super) shard: Option<Shard>,
    /// How many items of other shards were left out.
    pub(super) other_shards: u64,
    /// How many items were skipped because of their size.
    pub(super) oversized: u64,
    pub(super) repeat: Repeat,
    pub(super) list_kind: ListKind,
}

/// What is known about the kind of a JSON list.
pub(super) enum ListKind {
    /// The list may still name its kind. Contains the kind of the first item, once it has arrived.
    Open(Option<String>),
    /// The list has a kind of its own, such as `FooCollection` for `Foo`, as the definition of a custom resource may
    /// choose (`spec.names.listKind`). Its first item has yet to show that it is of the resource's kind.
    Own,
    Checked,
}

/// The items of a page that the attempts so far have processed.
#[derive(Clone, Default)]
pub(super) struct SeenItems {
    pub(super) items: u64,
    /// Items that were left out, including those of other shards.
    skipped: u64,
    pub(super) other_shards: u64,
    checksum: Option<Hasher>,
}

impl SeenItems {
    pub(super) fn all(&self) -> u64 {
        self.items + self.skipped
    }
}

/// Compares the items of a page with the items of earlier attempts.
pub(super) struct Repeat {
    seen: SeenItems,
    /// How many of the `seen` items have arrived again.
    count: u64,
    /// The checksum of all items so far, if the page may be requested again.
    checksum: Option<Hasher>,
}

enum Repeated {
    Delivered,
    Skipped,
    /// The items up to this one differ from those of the earlier attempt.
    Changed,
}

impl Repeat {
    pub(super) fn of(seen: SeenItems, checksum: Option<Hasher>) -> Self {
        Self { seen, count: 0, checksum }
    }

    /// Returns `None` for a new item.
    fn next(&mut self, item: &ItemRef<'_>) -> Option<Repeated> {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&item.bytes().len().to_le_bytes());
            checksum.update(item.bytes());
        }
        if !self.is_under_way() {
            return None;
        }
        let finalize = |checksum: &Option<Hasher>| checksum.clone().map(Hasher::finalize);
        if self.count + 1 == self.seen.all() && finalize(&self.checksum) != finalize(&self.seen.checksum) {
            return Some(Repeated::Changed);
        }
        self.count += 1;
        // Only the number of skipped items matters, not which items they were.
        Some(if self.count <= self.seen.skipped { Repeated::Skipped } else { Repeated::Delivered })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.count < self.seen.all()
    }
}

impl ListKind {
    /// Returns false if the item shows that the list is of another resource.
    fn allows(&mut self, item: &ItemRef<'_>, listing: &Listing) -> bool {
        if matches!(self, Self::Checked | Self::Open(Some(_))) {
            return true;
        }
        // Go's types for lists leave out the kinds of items, but the items of a custom resource have theirs.
        let kind = match item.own_type_meta() {
            Ok(None) => return true,
            Ok(Some(own)) => own.kind,
            Err(_) => String::new(),
        };
        let is_own = kind == listing.plan.resource.kind();
        if let Self::Own = mem::replace(self, Self::Checked) {
            return is_own;
        }
        *self = Self::Open(Some(kind));
        true
    }

    /// Returns true if the type meta may be the list's, although its kind is not the resource's kind with `List`
    /// appended. Lists of built-in kinds, whose groups contain no dot, always have that kind.
    fn may_be(&mut self, found: &TypeMeta, listing: &Listing) -> bool {
        let (expected, resource) = (&listing.expected, &listing.plan.resource);
        let is_custom = found.api_version == expected.api_version && found.api_version.contains('.');
        if !is_custom || listing.plan.params.selection.is_metadata_only() || found.kind == resource.kind() {
            return false;
        }
        match self {
            Self::Open(None) => *self = Self::Own,
            Self::Open(Some(kind)) if kind == resource.kind() => *self = Self::Checked,
            Self::Open(Some(_)) | Self::Own | Self::Checked => return false,
        }
        true
    }
}

enum PageEvent<T> {
    Item(T),
    Skipped,
    Oversized(Option<DecodeError>),
    Changed,
    OtherKind(TypeMeta),
    OtherShard,
    NoShard(ItemError),
    ListMeta { remaining: Option<u64> },
    Nothing,
}

impl Page {
    /// Returns the next item in the chunk, or `None` at its end.
    pub(super) fn next<O, E: Into<ItemError>>(
        &mut self,
        decode: &mut impl FnMut(ItemRef<'_>) -> Result<O, E>,
        listing: &mut Listing,
    ) -> Result<Option<O>, Error> {
        let (items, bytes) = (listing.summary.items, listing.summary.bytes);
        loop {
            match self.decode_event(decode, listing)? {
                None => {
                    // A waiting list keeps no chunk alive.
                    self.chunk = Bytes::new();
                    return Ok(None);
                }
                Some(PageEvent::Item(Ok(item))) => {
                    listing.plan.client.totals.item();
                    listing.plan.counters.at(bytes + self.decoder.position(), items + self.decoder.items());
                    if listing.summary.time_to_first_item.is_none() {
                        listing.summary.time_to_first_item = Some(listing.started.elapsed());
                    }
                    return Ok(Some(item));
                }
                Some(PageEvent::Item(Err(error))) => self.refuse(error.into(), listing)?,
                Some(PageEvent::NoShard(error)) => self.refuse(error, listing)?,
                Some(PageEvent::Skipped) => self.decoder.skip_item(),
                Some(PageEvent::Oversized(error)) => {
                    self.oversized += 1;
                    if let Some(error) = error {
                        listing.plan.report(&error);
                    }
                }
                Some(PageEvent::Changed) => return Err(ErrorKind::PageChanged.into()),
                Some(PageEvent::OtherKind(found)) => {
                    if !self.decoder.encoding().is_some_and(Encoding::is_self_describing)
                        || !self.list_kind.may_be(&found, listing)
                    {
                        return Err(ErrorKind::OtherKind { expected: listing.expected.clone(), found }.into());
                    }
                }
                Some(PageEvent::OtherShard) => {
                    self.decoder.skip_item();
                    self.other_shards += 1;
                }
                Some(PageEvent::ListMeta { remaining }) => {
                    let counters = &listing.plan.counters;
                    counters.expect_bytes(self.decoder.expected_bytes().map(|end| bytes + end));
                    let page = listing.plan.params.page_size.map(u64::from);
                    counters.expect_items(remaining.zip(page).map(|(remaining, page)| items + page + remaining));
                }
                Some(PageEvent::Nothing) => {}
            }
        }
    }

    /// Decodes the next event in the chunk and compares it with earlier attempts. Returns `None` at the end of the
    /// chunk.
    #[inline]
    fn decode_event<O, E>(
        &mut self,
        decode: &mut impl FnMut(ItemRef<'_>) -> Result<O, E>,
        listing: &Listing,
    ) -> Result<Option<PageEvent<Result<O, E>>>, Error> {
        let mut rest = &self.chunk[..];
        let (shard, repeat, list_kind) = (&mut self.shard, &mut self.repeat, &mut self.list_kind);
        let event = self.decoder.decode_with(&mut rest, |event| match event {
            Event::Item(item) if !list_kind.allows(&item, listing) => PageEvent::OtherKind(item.type_meta().clone()),
            Event::Item(item) => match repeat.next(&item) {
                Some(Repeated::Delivered) => PageEvent::Nothing,
                Some(Repeated::Skipped) => PageEvent::Skipped,
                Some(Repeated::Changed) => PageEvent::Changed,
                None => match shard.map(|shard| item.meta().map(|meta| shard.contains(&meta.uid()))) {
                    None | Some(Ok(true)) => PageEvent::Item(decode(item)),
                    Some(Ok(false)) => PageEvent::OtherShard,
                    Some(Err(error)) => PageEvent::NoShard(error),
                },
            },
            Event::TypeMeta(found) if !found.is_expected(&listing.expected) => PageEvent::OtherKind(found.clone()),
            Event::TypeMeta(_) => {
                *list_kind = ListKind::Checked;
                PageEvent::Nothing
            }
            Event::ListMeta(meta) => {
                let echoed = meta.shard_info.as_ref().map(|info| &*info.selector);
                *shard = shard.filter(|shard| !shard.complied(echoed));
                PageEvent::ListMeta { remaining: meta.remaining_item_count.and_then(|count| u64::try_from(count).ok()) }
            }
            // An earlier attempt has reported it.
            Event::Skipped(error) => PageEvent::Oversized((!repeat.is_under_way()).then(|| error.clone())),
        });
        let taken = self.chunk.len() - rest.len();
        self.chunk.advance(taken);
        event.map_err(|error| self.decode_error(error, listing))
    }

    fn refuse(&mut self, error: ItemError, listing: &mut Listing) -> Result<(), Error> {
        match self.decoder.refuse_item(error, listing.plan.skips_item_errors) {
            Ok(skipped) => listing.plan.report(&skipped),
            Err(error) => return Err(self.decode_error(error, listing)),
        }
        Ok(())
    }

    /// Returns true if no attempt delivered an item, so that a retry delivers no item twice.
    pub(super) fn is_untouched(&self) -> bool {
        let SeenItems { items, skipped, other_shards, .. } = self.seen();
        items + skipped == other_shards
    }

    /// Returns the items that this attempt or the earlier ones have processed, whichever processed more.
    pub(super) fn seen(&self) -> SeenItems {
        if self.repeat.is_under_way() {
            return self.repeat.seen.clone();
        }
        // A retry skips oversized items before it compares.
        let (items, skipped) = (self.decoder.items(), self.decoder.skipped() - self.oversized);
        SeenItems { items, skipped, other_shards: self.other_shards, checksum: self.repeat.checksum.clone() }
    }

    pub(super) fn broken(&self, error: TransportError, listing: &Listing) -> Error {
        if !error.kind().is_break() {
            return error.into();
        }
        self.incomplete(Some(error), listing)
    }

    fn incomplete(&self, cause: Option<TransportError>, listing: &Listing) -> Error {
        let elapsed = self.answer.started.elapsed();
        let timeout = listing.plan.params.timeout.unwrap_or(DEFAULT_REQUEST_TIMEOUT);
        // Not if the client ended the response. Bytes may arrive after the server's timeout because they were buffered.
        let own = cause
            .as_ref()
            .is_some_and(|cause| matches!(cause.kind(), TransportErrorKind::Deadline | TransportErrorKind::ReadIdle));
        let request_timeout = (!own && elapsed >= timeout.mul_f32(0.9)).then_some(timeout);
        let bytes = self.decoder.position();
        ErrorKind::Incomplete { cause, bytes, elapsed, request_timeout }.into()
    }

    pub(super) fn decode_error(&self, error: DecodeError, listing: &Listing) -> Error {
        match error.kind() {
            _ if error.is_incomplete() => self.incomplete(None, listing),
            DecodeErrorKind::Api(status) => body::of_status(Clone::clone(status), 500, &self.answer.headers).into(),
            // The caller's limit applies to all pages together.
            &DecodeErrorKind::Limit { limit, size, .. } if matches!(limit, Limit::Items | Limit::Bytes) => {
                let Limits { items, bytes, .. } = listing.plan.limits;
                let (before, max) = match limit {
                    Limit::Items => (listing.summary.seen(), items),
                    _ => (listing.summary.bytes, bytes),
                };
                let kind = DecodeErrorKind::Limit { limit, size: before.saturating_add(size), max };
                let error = DecodeError::new(kind, error.offset(), error.index(), error.items());
                ErrorKind::Decode(error).into()
            }
            _ => ErrorKind::Decode(error).into(),
        }
    }
}
