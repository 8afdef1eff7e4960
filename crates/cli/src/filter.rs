//! Selects items of a saved body, as a server does.

use listwatch::{ItemError, ItemRef, LabelSelector};

/// The namespace and the labels of the selected items.
#[derive(Default)]
pub struct ItemFilter {
    pub namespace: Option<String>,
    pub labels: LabelSelector,
}

impl ItemFilter {
    /// Returns true if all items are selected.
    pub fn is_empty(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty()
    }

    /// Returns true if the item is selected.
    pub fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        if self.is_empty() {
            return Ok(true);
        }
        let meta = item.meta()?;
        let is_inside = self.namespace.as_ref().is_none_or(|namespace| meta.namespace() == **namespace);
        Ok(is_inside && self.labels.matches(&meta)?)
    }
}
