//! Predicates, which decide which modifications of an object a subscriber receives.
//!
//! A predicate compares the two states of a write when the store replaces one by the other, so nothing is kept for an
//! object. kube instead keeps a hash for each object, because its streams contain only the new state.
//!
//! - Neighbouring states are enough even for a slow subscriber, because a property that differs between two states
//!   changed in some write between them. `and` is the exception, as its doc says.
//! - What cannot be compared passes: an unreadable state, and a property that neither state has.
//! - An object that was created again under its name passes, although one state replaces the other if the deletion was
//!   missed. A new object has generation 1 again, and often the same labels.
//! - The states are compared by views of the metadata rather than by bytes, because they may differ in encoding. In a
//!   compressed store this decompresses the replaced state, once for all subscribers.

use listwatch::{ItemError, Projection, StoreType};

use crate::state::object::Object;

/// Selects modifications of objects by what they change.
///
/// [`SubscriberBuilder::predicate_filter`](crate::SubscriberBuilder::predicate_filter) applies it. The names are those
/// of kube's `predicates`, with `or` in place of `combine`. Additions and deletions always pass, and so does an object
/// that was created again under its name.
///
/// | predicate | passes | drops |
/// |---|---|---|
/// | [`generation`](Self::generation) | changes of `spec`, and a request to delete | other changes of metadata and `status` |
/// | [`labels`](Self::labels), [`annotations`](Self::annotations) | changes of these | the request to delete |
/// | [`finalizers`](Self::finalizers) | changes of these | the request to delete |
/// | [`fields`](Self::fields) | changes of what a projection keeps | other changes |
/// | [`resource_version`](Self::resource_version) | each change that the API server makes | |
///
/// The request to delete changes an object only if the object has finalizers or a grace period.
///
/// A reconciler with a finalizer needs `generation`: the API server increments it when it sets the deletion timestamp
/// (`BeforeDelete` in `registry/rest/delete.go` of k8s.io/apiserver), but only if it is above 0. Kinds without a
/// generation, such as ConfigMaps and Secrets, need a [`fallback`](Self::fallback).
///
/// ```
/// use listwatch::Projection;
/// use listwatch::path::meta;
/// use listwatch_cache::Predicate;
///
/// // The desired state, or the metadata that users set.
/// let desired = Predicate::generation().or(Predicate::labels()).or(Predicate::annotations());
/// // Any kind: each change of a kind without a generation.
/// let any = Predicate::generation().fallback(Predicate::resource_version());
/// # drop((desired, any));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Predicate(Condition);

#[derive(Clone, Debug)]
enum Condition {
    Generation,
    Labels,
    Annotations,
    Finalizers,
    ResourceVersion,
    Fields(Box<Projection>),
    And(Box<(Condition, Condition)>),
    Or(Box<(Condition, Condition)>),
    Fallback(Box<(Condition, Condition)>),
}

impl Predicate {
    /// Passes a change of `metadata.generation`, which has no value for kinds that do not count generations.
    pub fn generation() -> Self {
        Self(Condition::Generation)
    }

    /// Passes a change of the labels.
    pub fn labels() -> Self {
        Self(Condition::Labels)
    }

    /// Passes a change of the annotations.
    pub fn annotations() -> Self {
        Self(Condition::Annotations)
    }

    /// Passes a change of the finalizers, or of their order.
    pub fn finalizers() -> Self {
        Self(Condition::Finalizers)
    }

    /// Passes a change of the resource version.
    pub fn resource_version() -> Self {
        Self(Condition::ResourceVersion)
    }

    /// Passes a change of the fields that the projection keeps, which are copied from both states.
    ///
    /// ```
    /// use listwatch::{FieldPath, Projection};
    /// use listwatch_cache::Predicate;
    ///
    /// const REPLICAS: FieldPath = FieldPath::new("spec.replicas", &[2, 1]);
    /// let scaled = Predicate::fields(Projection::new().keep(&REPLICAS));
    /// # drop(scaled);
    /// ```
    pub fn fields(projection: Projection) -> Self {
        Self(Condition::Fields(Box::new(projection)))
    }

    /// Passes a change that either of the two passes. It has no value if neither has one.
    pub fn or(self, other: Self) -> Self {
        Self(Condition::Or(Box::new((self.0, other.0))))
    }

    /// Passes a change that both pass, or that the only one with a value passes.
    ///
    /// Both must change in the same write: a change of the labels that is followed by a change of the annotations is
    /// dropped.
    pub fn and(self, other: Self) -> Self {
        Self(Condition::And(Box::new((self.0, other.0))))
    }

    /// Uses another predicate if this one has no value, neither before the change nor after it.
    pub fn fallback(self, other: Self) -> Self {
        Self(Condition::Fallback(Box::new((self.0, other.0))))
    }

    /// Returns true if a subscriber gets the change from `old` to `new`.
    pub(super) fn passes<T: StoreType + ?Sized>(&self, old: &Object<T>, new: &Object<T>) -> bool {
        old.uid() != new.uid() || self.0.is_changed(old, new).ok().flatten().unwrap_or(true)
    }
}

impl Condition {
    /// Returns `None` if neither state has a value.
    fn is_changed<T: StoreType + ?Sized>(&self, old: &Object<T>, new: &Object<T>) -> Result<Option<bool>, ItemError> {
        Ok(match self {
            Self::Generation => {
                let (old, new) = (old.meta()?.generation(), new.meta()?.generation());
                (old != 0 || new != 0).then_some(old != new)
            }
            Self::Labels => Some(!old.meta()?.labels()?.eq(new.meta()?.labels()?)),
            Self::Annotations => Some(!old.meta()?.annotations()?.eq(new.meta()?.annotations()?)),
            Self::Finalizers => Some(!old.meta()?.finalizers()?.eq(new.meta()?.finalizers()?)),
            Self::ResourceVersion => {
                let (old, new) = (old.resource_version(), new.resource_version());
                (!old.is_empty() || !new.is_empty()).then_some(old != new)
            }
            Self::Fields(fields) => Some(old.item()?.project(fields)? != new.item()?.project(fields)?),
            Self::And(both) => match (both.0.is_changed(old, new)?, both.1.is_changed(old, new)?) {
                (Some(one), Some(other)) => Some(one && other),
                (one, other) => one.or(other),
            },
            Self::Or(both) => match (both.0.is_changed(old, new)?, both.1.is_changed(old, new)?) {
                (Some(one), Some(other)) => Some(one || other),
                (one, other) => one.or(other),
            },
            Self::Fallback(both) => match both.0.is_changed(old, new)? {
                None => both.1.is_changed(old, new)?,
                known => known,
            },
        })
    }
}
