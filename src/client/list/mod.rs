//! Lists: the requests, and the items as a stream.
//!
//! `listing` contains the settings and the counts of a list, `pages` chooses the next request without knowing the types
//! of items, and `page` reads one response.
//!
//! | module | holds |
//! |---|---|
//! | this | [`List`], the stream: dropping it drops the response |
//! | `listing` | a list: its settings, what it has counted so far, and what the caller learns at its end |
//! | `pages` | the choice of the next request, over namespaces, pages, retries and restarts; independent of the items' types |
//! | `page` | one response: its items, and the items that earlier attempts delivered |

mod listing;
mod page;
mod pages;

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use self::listing::ListPlan;
pub use self::listing::{ListSummary, Restart};
pub use self::pages::Pages;
use super::api_client::Client;
use super::error::Error;
use super::params::{ListParams, Selection};
use super::progress::Progress;
use super::resource::{Kind, Resource};
use super::runtime::LONGEST;
use crate::adapt::FromRef;
use crate::error::{DecodeError, ItemError};
use crate::limits::Limits;
use crate::object::{Item, ItemRef};

/// A stream of the items of a list, which ends after the last item or an error; see [`Client::list`].
///
/// By default, the list is one request for the whole collection, and items are delivered while the response arrives.
/// Set [`ListParams::page_size`] for a collection that the server cannot write within its request timeout (60 s by
/// default), and for lists that [etcd serves](super::ResourceVersion). If a page has expired (410), the list ends in an
/// error that [is expired](Error::is_expired), unless [`on_restart`](Self::on_restart) is set.
///
/// Nothing is sent before the first poll, so set everything up before. The transports of this crate read up to three
/// pieces of about 256 KiB ahead of the consumer. Dropping the stream closes the connection, or resets the HTTP/2
/// stream.
#[must_use = "nothing is sent until it is polled"]
pub struct List<F> {
    pages: Pages,
    decode: F,
}

/// No field is pinned.
impl<F> Unpin for List<F> {}

impl<F> List<F> {
    pub(super) fn new(client: &Client, resource: &Resource, params: ListParams, decode: F) -> Self {
        Self { pages: Pages::new(ListPlan::new(client.clone(), resource.clone(), params)), decode }
    }

    fn plan(&mut self) -> &mut ListPlan {
        &mut self.pages.run.listing.plan
    }

    /// Lists only this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Lists these namespaces one after the other, each of them once.
    ///
    /// Without any namespace, the list is empty and nothing is sent. An error [names](Error::namespace) the namespace
    /// that failed.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut seen = BTreeSet::new();
        let namespaces = namespaces.into_iter().map(Into::into);
        self.plan().namespaces = namespaces.filter(|name: &String| seen.insert(name.clone())).map(Some).collect();
        self
    }

    /// Requests only one page: the first, or the one that a continue token names.
    ///
    /// The page contains [`ListParams::page_size`] items. [`ListSummary::list_meta`] contains the token of the next
    /// page, which is empty after the last page. A token contains the version of the first page, so
    /// [`ListParams::resource_version`] applies to the first page only.
    pub fn single_page(mut self, continue_token: Option<String>) -> Self {
        self.plan().follows_pages = false;
        self.plan().continue_token = continue_token;
        self
    }

    /// Accepts a list that is not a single snapshot.
    ///
    /// If a page has expired (410) and the server offers a token for it, the list continues at the latest version.
    /// Pages of several resource versions no longer end the list in [`ErrorKind::SeveralVersions`].
    /// [`ListSummary::consistent`] is then false, and objects that were written in between may be missing or newer than
    /// others.
    ///
    /// [`ErrorKind::SeveralVersions`]: super::ErrorKind::SeveralVersions
    pub fn allow_inconsistent(mut self) -> Self {
        self.plan().allows_inconsistent = true;
        self.accept_versions()
    }

    /// Accepts pages of several versions, for callers that then watch from the first version.
    #[doc(hidden)]
    pub fn accept_versions(mut self) -> Self {
        self.plan().accepts_versions = true;
        self
    }

    /// Sets the limits on bodies. The limits on items and bytes apply to all pages together.
    ///
    /// The default is the limits of the [`Client`](Client::limits).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan().limits = limits;
        self
    }

    /// Sets whether to skip items that cannot be decoded or are over [`Limits::item_size`].
    ///
    /// Skipped items are counted in [`ListSummary::skipped`]. By default, the list ends in an error that names the
    /// item.
    pub fn skip_item_errors(mut self, skip: bool) -> Self {
        self.plan().skips_item_errors = skip;
        self
    }

    /// Calls `hook` with the error of each skipped item, whose offset and index count within its page.
    pub fn on_skip(mut self, hook: impl FnMut(&DecodeError) + Send + 'static) -> Self {
        self.plan().on_skip = Some(Box::new(hook));
        self
    }

    /// Sets how long the whole list may take. The default is the deadline of the [`Client`](Client::deadline).
    pub fn deadline(mut self, time: Duration) -> Self {
        self.plan().deadline = Some(time.min(LONGEST));
        self
    }

    /// Starts over when a page has expired, instead of ending in an error.
    ///
    /// A page has expired if the server returns 410, or 400 for its token. The list starts over at most three times,
    /// and calls `hook` before the first item of the new snapshot; discard the items that were delivered until then.
    pub fn on_restart(mut self, hook: impl FnMut(Restart) + Send + 'static) -> Self {
        self.pages.run.on_restart = Some(Box::new(hook));
        self
    }

    /// Returns the summary once the list is complete; `None` before that and after an error.
    #[must_use]
    pub fn summary(&self) -> Option<&ListSummary> {
        self.pages.summary()
    }

    pub(super) fn into_summary(self) -> ListSummary {
        self.pages.run.listing.summary
    }

    /// Returns a handle to the progress of the list, for other threads.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.pages.run.listing.plan.counters))
    }

    /// Returns the pages without a decoder.
    #[doc(hidden)]
    pub fn into_pages(self) -> Pages {
        self.pages
    }
}

impl<F, O, E> List<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Returns the next item, or `None` after the last item or an error.
    ///
    /// This is `next` of `StreamExt`. Dropping the future loses no item.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is incomplete.
    pub async fn next(&mut self) -> Option<Result<O, Error>> {
        let Self { pages, decode } = self;
        poll_fn(|cx| pages.advance(cx, decode)).await.transpose()
    }

    /// Collects all items, and returns them together with the summary.
    ///
    /// If a page has expired (410), the list starts over, at most three times.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is incomplete, in which case its items are dropped.
    pub async fn into_vec(self) -> Result<(Vec<O>, ListSummary), Error> {
        let Self { mut pages, mut decode } = self;
        pages.run.on_restart.get_or_insert_with(|| Box::new(|_| {}));
        let mut all = Vec::new();
        loop {
            let item = poll_fn(|cx| pages.advance(cx, &mut decode)).await?;
            let abandoned = usize::try_from(mem::take(&mut pages.run.abandoned)).unwrap_or(usize::MAX);
            all.truncate(all.len().saturating_sub(abandoned));
            match item {
                Some(item) => all.push(item),
                None => return Ok((all, pages.run.listing.summary)),
            }
        }
    }
}

impl Client {
    /// Returns a list of the resource, in all namespaces unless the [`List`] names some. Nothing is sent yet.
    ///
    /// Items are decoded as `T`: see [`Item`]. If `T` is known to read another kind than the resource's, the list ends
    /// in an error before it sends anything.
    pub fn list<T: Item + ?Sized>(&self, resource: &Resource, params: &ListParams) -> List<FromRef<T>> {
        let mut params = params.clone();
        params.selection = params.selection.encoded_as(T::ENCODING);
        let mut list = List::new(self, resource, params, T::from_ref as FromRef<T>);
        list.plan().wrong_kind = resource.check_type::<T>().err();
        list
    }

    /// Returns a list of the resource of `T`, as [`list`](Self::list) does.
    pub fn list_of<T: Item + Kind + ?Sized>(&self, params: &ListParams) -> List<FromRef<T>> {
        self.list::<T>(&T::resource(), params)
    }

    /// Returns a list that passes each item to a closure, for projections, filters and tuples.
    pub fn list_with<O, E, F>(&self, resource: &Resource, params: &ListParams, decode: F) -> List<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        List::new(self, resource, params.clone(), decode)
    }

    /// Requests the current resource version of a collection, by listing one object.
    ///
    /// # Errors
    ///
    /// [`Error`], after the retries of this client.
    #[must_use = "nothing is sent until it is polled"]
    pub fn current_version(
        &self,
        resource: &Resource,
        selection: &Selection,
        namespace: Option<&str>,
    ) -> Pin<Box<dyn Future<Output = Result<String, Error>> + Send>> {
        let params = ListParams::new(selection.clone()).page_size(1);
        let list = self.list::<[u8]>(resource, &params).single_page(None);
        let list = match namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        };
        let mut pages = list.into_pages();
        Box::pin(async move {
            let mut skip = |_: ItemRef<'_>| Ok::<_, ItemError>(());
            while poll_fn(|cx| pages.advance(cx, &mut skip)).await?.is_some() {}
            pages.version()
        })
    }
}

impl<F, O, E> Stream for List<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<O, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { pages, decode } = &mut *self;
        pages.advance(cx, decode).map(Result::transpose)
    }
}

impl<F> fmt::Debug for List<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.pages.run;
        let (resource, items) = (&run.listing.plan.resource, run.listing.summary.items);
        f.debug_struct("List").field("resource", resource).field("items", &items).finish_non_exhaustive()
    }
}
