//! The store of a subscriber, as the subscriber needs it.

use crate::StoreType;
use crate::state::objects::Objects;
use crate::subscribe::registry::SubscriberRegistry;

/// The store that subscribers are registered with. A writer implements it, so that subscribers need not know writers.
pub(crate) trait SubscriberHost<T: StoreType + ?Sized>: Send + Sync {
    fn objects(&self) -> &Objects<T>;

    /// Runs a function under the writer's lock.
    ///
    /// # Panics
    ///
    /// Panics if an index function or a filter calls it during a write.
    fn exclude_writers(&self, function: &mut dyn FnMut(&mut SubscriberRegistry<T>));
}
