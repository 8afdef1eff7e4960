//! The results of reconciles.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use listwatch::client::{self, Resource};
use listwatch_cache::{ObjectKey, SyncError};

/// When an object is reconciled again, unless a change requests it earlier: the result of a reconcile.
///
/// It has the constructors of kube's `Action`, so a reconciler that moves changes its import and keeps its calls. There
/// is no conversion, because kube's `Action` does not reveal its time and has no [`backoff`](Self::backoff).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Action(pub(crate) NextReconcile);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReconcile {
    Requeue(Duration),
    AwaitChange,
    Backoff,
}

impl Action {
    /// Reconciles the object again after this time.
    pub const fn requeue(after: Duration) -> Self {
        Self(NextReconcile::Requeue(after))
    }

    /// Reconciles the object again only after a change.
    pub const fn await_change() -> Self {
        Self(NextReconcile::AwaitChange)
    }

    /// Reconciles the object again after a time that doubles with each failure in a row of this object.
    ///
    /// The time grows from 0.1 s to 5 minutes, and jitter adds up to a half. A reconciler that returns this without an
    /// error, for example to wait for another system, counts as failed here.
    pub const fn backoff() -> Self {
        Self(NextReconcile::Backoff)
    }
}

/// An error of a [`Controller`](crate::Controller).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The reconciler returned this error for this object, and the error policy decides what follows.
    ReconcilerFailed(E, ObjectKey),
    /// The reconciler panicked with this message for this object.
    ///
    /// The object is reconciled again after a [backoff](Action::backoff).
    ReconcilerPanicked(String, ObjectKey),
    /// A cache is incomplete or receives no more changes, so the controller ends.
    Cache(Box<CacheError>),
}

/// The error of a cache that ends a [`Controller`](crate::Controller).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// The cache was not synced in time: see [`cache_sync_timeout`](crate::Controller::cache_sync_timeout).
    #[non_exhaustive]
    NotSynced {
        /// The resource of the cache.
        resource: Resource,
        /// How long the controller has waited.
        after: Duration,
        /// The last error of the reflector.
        last_error: Option<client::Error>,
    },
    /// The cache lacks objects that it could not hold, or its reflector has ended.
    #[non_exhaustive]
    Ended {
        /// The resource of the cache.
        resource: Resource,
        /// The error of the cache.
        error: SyncError,
    },
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSynced { resource, after, last_error } => {
                write!(f, "the cache of {resource} was not synced within {after:?}")?;
                match last_error {
                    Some(error) => write!(f, ": {error}"),
                    None => f.write_str(", and its reflector has reported no error"),
                }
            }
            Self::Ended { resource, error } => write!(f, "the cache of {resource}: {error}"),
        }
    }
}

impl StdError for CacheError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotSynced { last_error, .. } => last_error.as_ref().and_then(StdError::source),
            Self::Ended { error, .. } => error.source(),
        }
    }
}

/// The text includes the cause, which may be a `Box<dyn Error>`.
impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReconcilerFailed(error, key) => write!(f, "the reconciler failed for {key}: {error}"),
            Self::ReconcilerPanicked(message, key) => write!(f, "the reconciler panicked for {key}: {message}"),
            Self::Cache(error) => write!(f, "the controller has ended: {error}"),
        }
    }
}

impl<E: StdError> StdError for Error<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::ReconcilerFailed(error, _) => error.source(),
            Self::ReconcilerPanicked(..) => None,
            Self::Cache(error) => error.source(),
        }
    }
}

/// An error of a reconciler, whose causes the controller logs.
///
/// It is any [`std::error::Error`], or a box of one such as `Box<dyn Error + Send + Sync>` or `anyhow::Error`. The
/// compiler infers `Form`, which tells the two apart.
pub trait ReconcileError<Form>: Send + 'static {
    /// Returns the error with its causes.
    fn as_error(&self) -> &(dyn StdError + 'static);
}

/// The form of an error that is a [`std::error::Error`].
#[derive(Debug)]
pub enum TypedError {}

/// The form of an error that contains a [`std::error::Error`].
#[derive(Debug)]
pub enum BoxedError {}

impl<E: StdError + Send + 'static> ReconcileError<TypedError> for E {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        self
    }
}

impl<E: AsRef<dyn StdError + Send + Sync> + Send + 'static> ReconcileError<BoxedError> for E {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        self.as_ref()
    }
}
