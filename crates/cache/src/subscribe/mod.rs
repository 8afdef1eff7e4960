//! Subscribers: their pending changes, and how writes notify them.

pub(crate) mod builder;
pub(crate) mod change;
pub(crate) mod delay;
pub(crate) mod predicate;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod resync;
pub(crate) mod subscriber;
pub(crate) mod subscription;
pub(crate) mod walk;
