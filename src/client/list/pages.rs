//! How a list chooses its next request.
//!
//! - Only `decoder.finish` proves that a page is complete; the end of a response proves nothing.
//! - An item is delivered at most once. A request is repeated only before its first item, or with a continue token.
//! - A token names the first item of its page, so a repeated request returns the same page. `Repeat` checks this by a
//!   checksum of the delivered items, and another page is `PageChanged`.
//! - A continue token contains the version of the first page, so all pages of an API server have that version. A page
//!   at another version ends the list unless the caller accepts it. The list is then inconsistent, but a watch still
//!   starts from the first version.
//! - When a token has expired (410, or 400 if the server cannot read it), the caller decides whether the list ends,
//!   continues at the latest version, or starts over. `on_restart` runs before the first item of the new snapshot.
//! - A 406 is repeated in plain JSON, but only before the first item.
//! - On broken servers, tokens may repeat in a cycle of any length. `Cycle` finds it with one token in memory.
//! - Servers and proxies may split a list into pages that nobody requested. The list follows them, unless the caller
//!   asked for a single page.
//! - `summary` counts finished pages only. `before` contains the counts from before this namespace, for a restart.
//!
//! | state | next |
//! |---|---|
//! | `Start` | `Opening`; `Complete` without a namespace |
//! | `Opening` | `Reading`; `Opening` again to retry or to start over |
//! | `Reading` | `Opening` for the next page or namespace, or to retry; `Complete` after the last |
//! | `Complete`, `Failed` | – |

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use crc32fast::Hasher;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, field};

use super::listing::{ListPlan, ListSummary, Listing, Restart};
use super::page::{ListKind, Page, Repeat, SeenItems};
use crate::client::body;
use crate::client::error::{Error, ErrorKind};
use crate::client::params::Selection;
use crate::client::progress::Progress;
use crate::client::retry::Tries;
use crate::client::runtime::on_own_runtime;
use crate::client::send::{Answer, accept_header, within};
use crate::client::span::{record_end, record_namespaces};
use crate::client::transport::chain;
use crate::decode::{ListDecoder, ListEnd};
use crate::error::{DecodeError, DecodeErrorKind, Fault, InvalidInput, ItemError};
use crate::object::ItemRef;
use crate::object::version::{is_older, is_resumable};

/// How often a list may start over after its pages expired.
const MAX_RESTARTS: u32 = 3;

const MAX_WARNINGS: usize = 100;

type OnRestart = Box<dyn FnMut(Restart) + Send>;

/// The pages of a list, without a decoder for its items.
pub struct Pages {
    pub(super) run: ListRun,
    pub(super) state: PagesState,
}

pub(super) enum PagesState {
    Start,
    Opening(Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>),
    Reading(Box<Page>),
    Complete,
    Failed,
}

impl Pages {
    pub(super) fn new(plan: ListPlan) -> Self {
        Self { run: ListRun::new(plan), state: PagesState::Start }
    }

    pub(super) fn summary(&self) -> Option<&ListSummary> {
        matches!(self.state, PagesState::Complete).then_some(&self.run.listing.summary)
    }

    /// Returns the version of the complete list, from which a watch can start.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is not complete or has no version.
    pub fn version(&self) -> Result<String, Error> {
        let version = self.summary().map_or("", |summary| &*summary.list_meta.resource_version);
        if !is_resumable(version) {
            let kind = DecodeErrorKind::Malformed { field: "metadata.resourceVersion", fault: Fault::Missing };
            let (bytes, items) = self.summary().map_or((0, 0), |summary| (summary.bytes, summary.items));
            return Err(ErrorKind::Decode(DecodeError::new(kind, bytes, None, items)).into());
        }
        Ok(version.to_owned())
    }

    /// Returns the newest version of all pages, which differ if the server continued the list at a later version.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is not complete or has no version.
    pub fn newest_version(&self) -> Result<String, Error> {
        let version = self.version()?;
        Ok(self.run.newest.clone().filter(|newest| is_older(&version, newest)).unwrap_or(version))
    }

    /// Returns how many bytes of bodies arrived on the network.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.run.listing.plan.counters.wire_bytes()
    }

    /// Returns the next item, decoded by `decode`.
    pub fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<O>, Error>> {
        loop {
            let next = match &mut self.state {
                PagesState::Start => self.run.start(),
                PagesState::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(answer) => Ok(PagesState::Reading(Box::new(self.run.page(answer)))),
                    Err(error) => self.run.after(error, None),
                },
                PagesState::Reading(page) => match page.next(decode, &mut self.run.listing) {
                    Ok(Some(item)) => return Poll::Ready(Ok(Some(item))),
                    Ok(None) => match ready!(page.answer.chunks.as_mut().poll_next(cx)) {
                        Some(Ok(chunk)) => {
                            page.chunk = chunk;
                            continue;
                        }
                        Some(Err(error)) => {
                            let error = page.broken(error, &self.run.listing);
                            self.run.after(error, Some(page))
                        }
                        None => match page.decoder.finish() {
                            Ok(_) if page.repeat.is_under_way() => {
                                self.run.after(ErrorKind::PageChanged.into(), Some(page))
                            }
                            Ok(end) => self.run.end_page(end, page),
                            Err(error) => {
                                let error = page.decode_error(error, &self.run.listing);
                                self.run.after(error, Some(page))
                            }
                        },
                    },
                    Err(error) if is_unexpected_encoding(&error) => {
                        let PagesState::Reading(page) = mem::replace(&mut self.state, PagesState::Failed) else {
                            continue;
                        };
                        Ok(self.run.unexpected(*page))
                    }
                    Err(error) => self.run.after(error, Some(page)),
                },
                PagesState::Complete | PagesState::Failed => return Poll::Ready(Ok(None)),
            };
            match next {
                Ok(state) => self.state = state,
                Err(error) => {
                    self.state = PagesState::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

/// The progress of a list through its namespaces, pages and attempts.
pub(super) struct ListRun {
    pub(super) listing: Listing,
    pub(super) on_restart: Option<OnRestart>,
    /// The index of the namespace.
    namespace: usize,
    /// The continue token of the next request.
    token: Option<String>,
    cycle: Cycle,
    /// The newest version of the pages after the first page, if it is newer than the version of the first page.
    newest: Option<String>,
    /// True once the first page of this namespace was read.
    later_page: bool,
    /// The counts in `summary` at the beginning of this namespace: items, skipped, of other shards, pages, bytes.
    before: [u64; 5],
    /// Items of abandoned snapshots that `into_vec` has not dropped yet.
    pub(super) abandoned: u64,
    /// The selection in the form of the last request.
    requested: Selection,
    tries: Tries,
    /// The items of the requested page that earlier attempts have processed.
    seen: SeenItems,
    deadline: Option<Instant>,
    span: Span,
}

impl ListRun {
    fn new(plan: ListPlan) -> Self {
        let span = tracing::info_span!(
            "listwatch.list",
            resource = %plan.resource,
            resource_version = ?plan.params.resource_version,
            page_size = plan.params.page_size,
            namespace = field::Empty,
            label_selector = plan.params.selection.label_text(),
            field_selector = plan.params.selection.field_text(),
            items = field::Empty,
            bytes = field::Empty,
            first_item_ms = field::Empty,
            attempts = field::Empty,
            status = field::Empty,
        );
        Self {
            namespace: 0,
            token: None,
            cycle: Cycle::default(),
            newest: None,
            later_page: false,
            before: [0; 5],
            abandoned: 0,
            requested: plan.params.selection.clone(),
            tries: plan.client.tries(),
            seen: SeenItems::default(),
            deadline: None,
            span,
            listing: Listing::new(plan),
            on_restart: None,
        }
    }

    fn start(&mut self) -> Result<PagesState, Error> {
        let ListPlan { params, continue_token, resource, namespaces, wrong_kind, .. } = &self.listing.plan;
        if let Some(error) = wrong_kind {
            return Err(error.clone().into());
        }
        params.validate()?;
        if continue_token.as_deref() == Some("") {
            // The server would return the first page again.
            return Err(InvalidInput::new("an empty continue token: there is no next page", "").into());
        }
        for namespace in namespaces {
            resource.list_path(namespace.as_deref())?;
        }
        record_namespaces(&self.span, namespaces.iter().flatten());
        if let Some(page_size) = params.page_size
            && params.resource_version.is_any()
        {
            let _entered = self.span.enter();
            tracing::warn!(page_size, "the server ignores page sizes with resource version 0");
        }
        self.listing.started = Instant::now();
        self.deadline = self.listing.plan.deadline.map(|time| self.listing.started + time);
        self.next_namespace()
    }

    fn next_namespace(&mut self) -> Result<PagesState, Error> {
        if self.namespace >= self.listing.plan.namespaces.len() {
            return Ok(self.complete());
        }
        let ListSummary { items, skipped, other_shards, pages, bytes, .. } = self.listing.summary;
        self.before = [items, skipped, other_shards, pages, bytes];
        self.begin();
        self.request()
    }

    fn begin(&mut self) {
        self.token.clone_from(&self.listing.plan.continue_token);
        self.cycle = Cycle::default();
        self.newest = None;
        self.later_page = false;
    }

    /// Requests the next page, with new attempts.
    fn request(&mut self) -> Result<PagesState, Error> {
        self.tries = self.listing.plan.client.tries();
        self.seen = SeenItems::default();
        self.open(Duration::ZERO)
    }

    fn open(&mut self, wait: Duration) -> Result<PagesState, Error> {
        let ListPlan { client, resource, params, namespaces, counters, .. } = &self.listing.plan;
        let mut path = resource.list_path(namespaces.get(self.namespace).and_then(|name| name.as_deref()))?;
        let query = params.query(self.token.as_deref());
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        self.requested = client.acceptable(resource, &params.selection)?;
        let accept = accept_header(self.requested.accept_list())?;
        let (client, counters, deadline) = (client.clone(), Arc::clone(counters), self.deadline);
        let attempt = counters.requests() + 1;
        let opening = async move {
            if !wait.is_zero() {
                let waiting = async {
                    sleep(wait).await;
                    Ok(())
                };
                within(deadline, waiting).await?;
            }
            tracing::debug!(attempt, path, "requesting");
            client.send(path, accept, deadline, &counters).await
        };
        Ok(PagesState::Opening(Box::pin(on_own_runtime(opening).instrument(self.span.clone()))))
    }

    /// Reads more of a body that is neither protobuf nor JSON, for the error.
    fn unexpected(&self, page: Page) -> PagesState {
        let Page { answer: Answer { headers, mut chunks, .. }, chunk, decoder, .. } = page;
        let chunk = Bytes::from([decoder.magic_read(), &chunk].concat());
        let (client, audit_id) = (self.listing.plan.client.clone(), self.listing.summary.audit_id.clone());
        PagesState::Opening(Box::pin(async move {
            let beginning = body::beginning(chunk, &mut chunks).await;
            Err(Error::new(client.unexpected(&beginning, &headers)).with_audit_id(audit_id))
        }))
    }

    fn page(&mut self, mut answer: Answer) -> Page {
        self.listing.summary.audit_id = answer.audit_id.take();
        for warning in mem::take(&mut answer.warnings) {
            if self.listing.summary.warnings.len() < MAX_WARNINGS && !self.listing.summary.warnings.contains(&warning) {
                self.listing.summary.warnings.push(warning);
            }
        }
        let mut limits = self.listing.plan.limits;
        limits.items = limits.items.saturating_sub(self.listing.summary.seen());
        limits.bytes = limits.bytes.saturating_sub(self.listing.summary.bytes);
        let repeat = Repeat::of(self.seen.clone(), self.is_repeatable().then(Hasher::new));
        Page {
            decoder: ListDecoder::with_limits(limits)
                .accept_json()
                .skip_item_errors(self.listing.plan.skips_item_errors),
            chunk: mem::take(&mut answer.first),
            answer,
            shard: self.listing.plan.params.selection.shard_of(),
            other_shards: self.seen.other_shards,
            oversized: 0,
            repeat,
            list_kind: ListKind::Open(None),
        }
    }

    /// Returns true if repeating the request returns the same page, because a continue token names its first item. The
    /// checksum of the delivered items detects another page.
    fn is_repeatable(&self) -> bool {
        self.token.is_some()
    }

    fn end_page(&mut self, end: ListEnd, page: &Page) -> Result<PagesState, Error> {
        let summary = &mut self.listing.summary;
        summary.pages += 1;
        summary.items += end.items;
        summary.skipped += end.skipped - page.other_shards;
        summary.other_shards += page.other_shards;
        summary.bytes += end.bytes;
        summary.type_meta = end.type_meta;
        let first = mem::replace(&mut summary.list_meta, end.list_meta).resource_version;
        if self.later_page && summary.list_meta.resource_version != first {
            if !self.listing.plan.accepts_versions {
                let found = mem::take(&mut summary.list_meta.resource_version);
                let error = Error::new(ErrorKind::SeveralVersions { first, found }).with_items(summary.items);
                let error = error.with_namespace(self.listing.plan.one_of_several(self.namespace));
                let error = error.with_audit_id(summary.audit_id.clone());
                return Err(error.redacted(&*self.listing.plan.client.transport));
            }
            // A watch from the first version receives all changes since then, and repeats some.
            let page = mem::replace(&mut summary.list_meta.resource_version, first);
            if is_older(self.newest.as_deref().unwrap_or(&summary.list_meta.resource_version), &page) {
                self.newest = Some(page);
            }
            summary.consistent = false;
        }
        self.listing.plan.counters.at(summary.bytes, summary.items);
        let token = &summary.list_meta.continue_token;
        // Some servers and proxies split a list that the client did not request in pages.
        if self.listing.plan.follows_pages && !token.is_empty() {
            if self.token.as_ref() == Some(token) || self.cycle.contains(token) {
                let error = Error::new(ErrorKind::RepeatedToken).with_items(summary.items);
                let error = error.with_namespace(self.listing.plan.one_of_several(self.namespace));
                return Err(error.with_audit_id(summary.audit_id.clone()));
            }
            self.token = Some(token.clone());
            self.later_page = true;
            return self.request();
        }
        if let Some(Some(namespace)) = self.listing.plan.namespaces.get(self.namespace) {
            summary.namespaces.push((namespace.clone(), summary.list_meta.clone()));
        }
        self.namespace += 1;
        self.next_namespace()
    }

    fn complete(&mut self) -> PagesState {
        let summary = &mut self.listing.summary;
        summary.wire_bytes = Progress(Arc::clone(&self.listing.plan.counters)).wire_bytes();
        summary.attempts = self.listing.plan.counters.requests();
        summary.elapsed = self.listing.started.elapsed();
        let _entered = self.span.enter();
        record_end(&self.span, self.listing.plan.counters.requests(), None);
        self.span.record("items", summary.items);
        self.span.record("bytes", summary.bytes);
        if let Some(time) = summary.time_to_first_item {
            self.span.record("first_item_ms", time.as_secs_f64() * 1000.0);
        }
        let ListSummary { items, other_shards, bytes, wire_bytes, pages, attempts, .. } = *summary;
        let ListPlan { client, resource, .. } = &self.listing.plan;
        if other_shards > 0 && client.warnings.admit(("listwatch.shards", resource)).is_some() {
            tracing::warn!(other_shards, "the server does not support shards and sent all objects");
        }
        let resource_version = &*summary.list_meta.resource_version;
        tracing::debug!(resource_version, items, bytes, wire_bytes, pages, attempts, "complete");
        PagesState::Complete
    }

    /// Returns the next state after an error of this request, or the error if it ends the list.
    fn after(&mut self, error: Error, page: Option<&Page>) -> Result<PagesState, Error> {
        if let Some(page) = page {
            self.seen = page.seen();
        }
        let delivered = self.listing.summary.items + self.seen.items;
        let mut error = error.redacted(&*self.listing.plan.client.transport).with_items(delivered);
        error = error.of_later_page(self.token.is_some());
        error = error.with_namespace(self.listing.plan.one_of_several(self.namespace));
        if let Some(id) = page.and(self.listing.summary.audit_id.clone()) {
            error = error.with_audit_id(Some(id));
        }
        let is_untouched = page.is_none_or(Page::is_untouched);
        if is_untouched && error.is_expired() && self.starts_anew(&error) {
            return self.request();
        }
        if is_untouched {
            let ListPlan { client, resource, .. } = &self.listing.plan;
            if client.needs_plain_json(&error, resource, &self.requested)? {
                return self.request();
            }
        }
        if is_untouched || self.is_repeatable() {
            let advice = self.listing.plan.client.classify(&error);
            if let Some(wait) = self.span.in_scope(|| self.tries.again(&error, advice)) {
                if !self.is_repeatable() {
                    self.seen = SeenItems::default();
                }
                return self.open(wait);
            }
        }
        record_end(&self.span, self.listing.plan.counters.requests(), Some(&error));
        self.span.in_scope(|| tracing::debug!(error = %chain(&error), "failed"));
        Err(error)
    }

    /// Continues at the latest version, or from the first page, if the caller allows it.
    fn starts_anew(&mut self, error: &Error) -> bool {
        // If a part of the page was delivered, the offered token would deliver the same items again.
        if self.listing.plan.allows_inconsistent && self.seen.all() == 0 {
            let offered = error.status().and_then(|status| Some(&status.metadata.as_ref()?.continue_token));
            // If the offered token has expired too, the server may offer it again.
            if let Some(token) = offered.filter(|token| !token.is_empty() && self.token.as_ref() != Some(*token))
                && !self.cycle.contains(token)
            {
                let _entered = self.span.enter();
                if let Some(left_out) = self.listing.plan.client.warnings.admit("listwatch.restart") {
                    tracing::warn!(name: "listwatch.restart", error = %chain(error), left_out, "the next page has expired: continuing at the latest version");
                }
                self.token = Some(token.clone());
                self.listing.summary.consistent = false;
                return true;
            }
        }
        let Some(on_restart) = self.on_restart.as_mut().filter(|_| self.later_page) else { return false };
        if self.listing.summary.restarts >= MAX_RESTARTS {
            return false;
        }
        let [items, skipped, other_shards, pages, bytes] = self.before;
        let abandoned = self.listing.summary.items + self.seen.items - items;
        let namespace = self.listing.plan.namespaces.get(self.namespace).cloned().flatten();
        let client = &self.listing.plan.client;
        if let Some(left_out) = client.warnings.admit(("listwatch.restart", &self.listing.plan.resource)) {
            let _entered = self.span.enter();
            tracing::warn!(name: "listwatch.restart", error = %chain(error), abandoned, left_out, "the next page has expired: starting over");
        }
        client.totals.restart();
        on_restart(Restart { namespace, items: abandoned });
        self.abandoned += abandoned;
        let restarts = self.listing.summary.restarts + 1;
        let rest = mem::take(&mut self.listing.summary);
        self.listing.summary = ListSummary { items, skipped, other_shards, pages, restarts, bytes, ..rest };
        self.begin();
        true
    }
}

fn is_unexpected_encoding(error: &Error) -> bool {
    let ErrorKind::Decode(error) = error.kind() else { return false };
    matches!(error.kind(), DecodeErrorKind::UnexpectedEncoding(_))
}

/// Detects continue tokens that repeat in a cycle of any length, keeping one token in memory (Brent's algorithm).
#[derive(Default)]
struct Cycle {
    /// A token that the server sent.
    token: String,
    /// How many tokens have followed since, and how many may follow before another one is kept.
    steps: u64,
    keep_after: u64,
}

impl Cycle {
    /// Returns true if the server has sent this token before. A cycle is found after a few times its length.
    fn contains(&mut self, token: &str) -> bool {
        if self.token == token {
            return true;
        }
        self.steps += 1;
        if self.steps > self.keep_after {
            token.clone_into(&mut self.token);
            self.keep_after = 2 * self.steps;
            self.steps = 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Cycle;

    #[test]
    fn finds_each_cycle_of_tokens_and_no_other() {
        let mut cycle = Cycle::default();
        assert!(!(0..10_000).any(|page| cycle.contains(&page.to_string())));
        for (before, length) in [(0, 1), (0, 2), (1, 1), (1, 2), (7, 3), (100, 1), (3, 100)] {
            let mut cycle = Cycle::default();
            let token = |page: usize| if page < before { page } else { before + (page - before) % length };
            let found = (0..10_000).position(|page| cycle.contains(&token(page).to_string())).unwrap();
            assert!(found <= 4 * (before + length), "{before}, {length}: {found}");
            assert!(found >= before + length, "{before}, {length}: {found}");
        }
    }
}
