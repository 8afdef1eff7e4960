//! Gets one object: [`Get`].

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, field};

use super::api_client::Client;
use super::body;
use super::document::{Document, DocumentRequest};
use super::error::{Error, ErrorKind};
use super::params::{Selection, check_version};
use super::progress::Counters;
use super::resource::{Resource, encode};
use super::runtime::LONGEST;
use super::send::accept_header;
use super::span::record_end;
use crate::adapt::FromRef;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::with_codec;
use crate::error::{DecodeError, DecodeErrorKind, InvalidInput, ItemError, Limit};
use crate::limits::Limits;
use crate::object::Item;
use crate::wire::Beginning;

/// A request for one object, which is sent when it is awaited; see [`Client::get`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use listwatch::client::{Client, Resource};
///
/// # async fn run(client: Client) -> Result<(), listwatch::client::Error> {
/// let whole = client.get::<[u8]>(&Resource::PODS, Some("web"), "shop-1").await?;
/// // Its labels and owners, at least as new as a write of this program, within two seconds.
/// let metadata = client
///     .get::<[u8]>(&Resource::PODS, Some("web"), "shop-1")
///     .metadata_only()
///     .at_least("71532")
///     .deadline(Duration::from_secs(2))
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error`]; its [code](Error::code) is 404 if there is no such object.
#[must_use = "nothing is sent until it is awaited"]
pub struct Get<O> {
    client: Client,
    resource: Resource,
    namespace: Option<String>,
    name: String,
    selection: Selection,
    /// The error of a type that reads another kind than the resource's.
    wrong_kind: Option<InvalidInput>,
    accepts_any_kind: bool,
    at_least: Option<String>,
    limits: Limits,
    deadline: Option<Duration>,
    decode: fn(ItemRef<'_>) -> Result<O, ItemError>,
}

impl Client {
    /// Returns a request for one object. Nothing is sent until it is awaited.
    ///
    /// The object is decoded as `T`: see [`Item`]. `[u8]` returns JSON for a custom resource, and protobuf for any
    /// other. If `T` is known to read another kind than the resource's, the call fails before it sends anything.
    pub fn get<T: Item + ?Sized>(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Get<T::Owned> {
        let decode: FromRef<T> = T::from_ref;
        Get {
            client: self.clone(),
            resource: resource.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            selection: Selection::all().encoded_as(T::ENCODING),
            wrong_kind: resource.check_type::<T>().err(),
            accepts_any_kind: false,
            at_least: None,
            limits: self.limits,
            deadline: self.deadline,
            decode,
        }
    }
}

impl<O> Get<O> {
    /// Requests only the metadata as a `PartialObjectMetadata`, as [`Selection::metadata_only`] does.
    pub fn metadata_only(mut self) -> Self {
        self.selection = self.selection.metadata_only();
        self
    }

    /// Accepts an object of another version or kind than the resource's, for the command: kubectl prints what it gets.
    #[doc(hidden)]
    pub fn any_kind(mut self) -> Self {
        self.accepts_any_kind = true;
        self
    }

    /// Requests the object at this resource version or a newer one, from the server's watch cache.
    ///
    /// Version `0` accepts any version that the server has. By default, the server reads the most recent version from
    /// etcd. If it does not reach the version within 3 s, the error [is of a too large
    /// version](Error::is_too_large_version).
    pub fn at_least(mut self, resource_version: impl Into<String>) -> Self {
        self.at_least = Some(resource_version.into());
        self
    }

    /// Sets the limits on the object, where [`Limits::item_size`] applies to the whole body.
    ///
    /// The default is the limits of the [`Client`](Client::limits).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long the call may take, including retries. The default is the deadline of the
    /// [`Client`](Client::deadline).
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time.min(LONGEST));
        self
    }

    async fn send(self, counters: Arc<Counters>) -> Result<O, Error> {
        let Self { client, resource, namespace, name, selection, wrong_kind, at_least, limits, deadline, .. } = &self;
        if let Some(error) = wrong_kind {
            return Err(error.clone().into());
        }
        let mut path = resource.get_path(namespace.as_deref(), name)?;
        if let Some(version) = at_least {
            check_version(version)?;
            path.extend(["?resourceVersion=", &encode(version).to_string()]);
        }
        let Limits { item_size, bytes, .. } = *limits;
        let limit = if bytes < item_size { (Limit::Bytes, bytes) } else { (Limit::ItemSize, item_size) };
        let deadline = deadline.map(|time| Instant::now() + time);
        loop {
            let requested = client.acceptable(resource, selection)?;
            let accept = accept_header(requested.accept_watch())?;
            let counters = Arc::clone(&counters);
            let request = DocumentRequest { path: path.clone(), accept, limit, deadline, counters };
            let got = client.document(&request, |error| client.classify(error), |document| self.object(document));
            match got.await {
                Err(error) if client.needs_plain_json(&error, resource, &requested)? => {}
                got => return got,
            }
        }
    }

    fn object(&self, document: &Document) -> Result<O, ErrorKind> {
        let Document { headers, body, .. } = document;
        let expected = self.selection.type_meta(&self.resource);
        let decode = |kind| ErrorKind::Decode(DecodeError::new(kind, 0, None, 0));
        let (encoding, found, object) = match Beginning::find(body) {
            None => return Err(decode(DecodeErrorKind::Incomplete)),
            Some((Beginning::Encoded(encoding), body)) if with_codec!(encoding, C => body.starts_with(C::MAGIC)) => {
                let (found, object) = with_codec!(encoding, C => C::document(body)).map_err(decode)?;
                (encoding, found, object)
            }
            Some(_) => return Err(self.client.unexpected(body, headers)),
        };
        if found.kind == "Status" {
            return Err(body::api_error(500, headers, body, &*self.client.transport));
        }
        if !self.accepts_any_kind && !found.is_expected(&expected) {
            return Err(ErrorKind::OtherKind { expected, found });
        }
        let mut item = ItemRef::new(encoding, object).with_type_meta(&found);
        item.decoded_size = self.limits.decoded_size;
        (self.decode)(item).map_err(|error| decode(DecodeErrorKind::Item(error)))
    }
}

impl<O: Send + 'static> IntoFuture for Get<O> {
    type Output = Result<O, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let span = tracing::info_span!(
            "listwatch.get",
            resource = %self.resource,
            namespace = self.namespace,
            name = self.name,
            attempts = field::Empty,
            status = field::Empty,
        );
        let (counters, of_get) = (Arc::new(Counters::new(&self.client.totals)), span.clone());
        let sending = async move {
            let got = self.send(Arc::clone(&counters)).await;
            record_end(&of_get, counters.requests(), got.as_ref().err());
            got
        };
        Box::pin(sending.instrument(span))
    }
}

impl<O> fmt::Debug for Get<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get")
            .field("resource", &self.resource)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
