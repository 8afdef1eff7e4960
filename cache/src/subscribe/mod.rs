//! Subscribers: the pending changes of each, and who is notified of a write.

pub(crate) mod change;
pub(crate) mod queue;
pub(crate) mod resync;
pub(crate) mod subscriber;
pub(crate) mod subscription;
