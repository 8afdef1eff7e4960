//! Which watches a change may concern: an index of watches by a value that they require.

use std::collections::{BTreeMap, HashMap};

use listwatch::{FieldSelector, ItemError};
use listwatch_cache::Object;

use super::select::ReadSelector;
use crate::resource::Mirrored;

/// The most paths of fields by which watches are found. The definition of a custom resource does not bound them for the
/// mirror, and each one is read from each change.
const MAX_PATHS: usize = 16;

/// Watches, by their number.
type Watches<W> = HashMap<u64, W>;

/// Watches by the value that they require. Each one is in one of the maps.
pub(super) struct WatchRoutes<W> {
    all: HashMap<u64, (WatchRoute, W)>,
    by_name: HashMap<String, Watches<W>>,
    by_namespace: HashMap<String, Watches<W>>,
    /// By path and value.
    by_field: HashMap<String, HashMap<String, Watches<W>>>,
    /// By key and value.
    by_label: HashMap<String, HashMap<String, Watches<W>>>,
    /// Those that require no single value.
    others: Watches<W>,
}

/// The value by which a watch is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchRoute {
    Name(String),
    Namespace(String),
    Field(String, String),
    Label(String, String),
    Other,
}

impl<W: Clone> WatchRoutes<W> {
    pub(super) fn new() -> Self {
        Self {
            all: HashMap::new(),
            by_name: HashMap::new(),
            by_namespace: HashMap::new(),
            by_field: HashMap::new(),
            by_label: HashMap::new(),
            others: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = &W> {
        self.all.values().map(|(_, watch)| watch)
    }

    /// Adds a watch under this number.
    pub(super) fn insert(&mut self, number: u64, selector: &ReadSelector, watch: W) {
        let route = self.choose_route(selector);
        let of_value = match &route {
            WatchRoute::Name(name) => self.by_name.entry(name.clone()).or_default(),
            WatchRoute::Namespace(namespace) => self.by_namespace.entry(namespace.clone()).or_default(),
            WatchRoute::Field(path, value) => {
                self.by_field.entry(path.clone()).or_default().entry(value.clone()).or_default()
            }
            WatchRoute::Label(key, value) => {
                self.by_label.entry(key.clone()).or_default().entry(value.clone()).or_default()
            }
            WatchRoute::Other => &mut self.others,
        };
        of_value.insert(number, watch.clone());
        self.all.insert(number, (route, watch));
    }

    pub(super) fn remove(&mut self, number: u64) {
        let Some((route, _)) = self.all.remove(&number) else { return };
        match route {
            WatchRoute::Name(name) => remove_from(&mut self.by_name, &name, number),
            WatchRoute::Namespace(namespace) => remove_from(&mut self.by_namespace, &namespace, number),
            WatchRoute::Field(path, value) => remove_from_nested(&mut self.by_field, &path, &value, number),
            WatchRoute::Label(key, value) => remove_from_nested(&mut self.by_label, &key, &value, number),
            WatchRoute::Other => drop(self.others.remove(&number)),
        }
    }

    /// Returns the required value that the fewest objects share.
    fn choose_route(&self, selector: &ReadSelector) -> WatchRoute {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let is_read = |path: &str| self.by_field.contains_key(path) || self.by_field.len() < MAX_PATHS;
        let fields = || selector.field_equations();
        if let Some((_, name)) = fields().find(|(path, _)| *path == "metadata.name") {
            return WatchRoute::Name(name.to_owned());
        }
        let field = fields().find(|(path, _)| *path != "metadata.namespace" && is_read(path)).map(owned);
        if let Some((path, value)) = field {
            return WatchRoute::Field(path, value);
        }
        if let Some((key, value)) = selector.label_equations().next().map(owned) {
            return WatchRoute::Label(key, value);
        }
        selector.namespace.clone().map_or(WatchRoute::Other, WatchRoute::Namespace)
    }

    /// Adds the watches that may select this state of an object.
    ///
    /// # Errors
    ///
    /// [`ItemError`] if the state cannot be read: then it may concern any watch.
    pub(super) fn find(
        &self,
        mirrored: &Mirrored,
        object: &Object<[u8]>,
        found: &mut BTreeMap<u64, W>,
    ) -> Result<(), ItemError> {
        add(found, self.by_name.get(object.name()));
        add(found, self.by_namespace.get(object.namespace()));
        add(found, Some(&self.others));
        if self.by_field.is_empty() && self.by_label.is_empty() {
            return Ok(());
        }
        let item = object.item()?;
        if !self.by_label.is_empty() {
            for (key, value) in item.meta()?.labels()? {
                add(found, self.by_label.get(&*key).and_then(|of_key| of_key.get(&*value)));
            }
        }
        let item = item.with_type_meta(&mirrored.type_meta);
        for (path, of_path) in &self.by_field {
            add(found, of_path.get(&*FieldSelector::text(&item, path)?));
        }
        Ok(())
    }
}

fn add<W: Clone>(found: &mut BTreeMap<u64, W>, watches: Option<&Watches<W>>) {
    found.extend(watches.into_iter().flatten().map(|(number, watch)| (*number, watch.clone())));
}

fn remove_from<W>(map: &mut HashMap<String, Watches<W>>, value: &str, number: u64) {
    if let Some(watches) = map.get_mut(value) {
        watches.remove(&number);
        if watches.is_empty() {
            map.remove(value);
        }
    }
}

fn remove_from_nested<W>(map: &mut HashMap<String, HashMap<String, Watches<W>>>, key: &str, value: &str, number: u64) {
    if let Some(of_key) = map.get_mut(key) {
        remove_from(of_key, value, number);
        if of_key.is_empty() {
            map.remove(key);
        }
    }
}
