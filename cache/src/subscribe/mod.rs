//! Subscribers: the pending changes of each, and who is notified of a write.

pub(crate) mod builder;
pub(crate) mod change;
pub(crate) mod host;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod resync;
pub(crate) mod subscriber;
pub(crate) mod subscription;
pub(crate) mod walk;
