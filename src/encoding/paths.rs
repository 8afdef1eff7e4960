//! A path by names and by numbers, and the trees of what the paths of a projection keep and drop.

use std::borrow::Borrow;

#[derive(Clone, Copy)]
pub(crate) struct Steps<'p> {
    /// The names, separated by dots, or empty if they are unknown.
    pub(crate) names: &'p str,
    /// The field numbers, or empty if they are unknown.
    pub(crate) numbers: &'p [u32],
    /// The key in the map at the end of the path.
    pub(crate) key: Option<&'p str>,
}

impl<'p> Steps<'p> {
    /// Returns the names, including the key.
    pub(crate) fn names(self) -> impl Iterator<Item = &'p str> {
        self.names.split('.').filter(|name| !name.is_empty()).chain(self.key)
    }
}

/// The rules of the paths for a field and the fields in it, by number or by name.
#[derive(Clone, Debug)]
pub(crate) struct Node<K> {
    /// True if a path ends here and so applies to the whole field.
    pub(crate) whole: bool,
    /// The keys of a map to which paths apply. In a tree of names, keys are fields.
    pub(crate) keys: Vec<Box<str>>,
    pub(crate) fields: Vec<(K, Node<K>)>,
}

impl<K> Default for Node<K> {
    fn default() -> Self {
        Self { whole: false, keys: Vec::new(), fields: Vec::new() }
    }
}

impl<K: PartialEq> Node<K> {
    pub(crate) fn add(&mut self, steps: impl IntoIterator<Item = K>, key: Option<&str>) {
        let mut node = self;
        for step in steps {
            let at = node.fields.iter().position(|(known, _)| *known == step).unwrap_or(node.fields.len());
            if at == node.fields.len() {
                node.fields.push((step, Self::default()));
            }
            let Some((_, child)) = node.fields.get_mut(at) else { return };
            node = child;
        }
        match key {
            Some(key) => node.keys.push(key.into()),
            None => node.whole = true,
        }
    }

    fn field<Q: PartialEq + ?Sized>(&self, step: &Q) -> Option<&Self>
    where
        K: Borrow<Q>,
    {
        self.fields.iter().find(|(known, _)| known.borrow() == step).map(|(_, node)| node)
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.keys.iter().any(|known| known.as_bytes() == key)
    }
}

/// The rules of the paths for the fields of one message.
#[derive(Debug)]
pub(crate) struct Rules<'p, K> {
    /// `None` keeps all.
    pub(crate) keep: Option<&'p Node<K>>,
    /// `None` drops nothing.
    pub(crate) drop: Option<&'p Node<K>>,
}

impl<K> Clone for Rules<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Rules<'_, K> {}

pub(crate) enum Action<'p, K> {
    Drop,
    Keep,
    /// Applies these rules to the fields of the message.
    Project(Rules<'p, K>),
}

impl<'p, K: PartialEq> Rules<'p, K> {
    pub(crate) fn action<Q: PartialEq + ?Sized>(self, step: &Q) -> Action<'p, K>
    where
        K: Borrow<Q>,
    {
        let keep = match self.keep {
            None => None,
            Some(node) => match node.field(step) {
                None => return Action::Drop,
                Some(node) => (!node.whole).then_some(node),
            },
        };
        let drop = self.drop.and_then(|node| node.field(step));
        match (keep, drop) {
            (_, Some(Node { whole: true, .. })) => Action::Drop,
            (None, None) => Action::Keep,
            _ => Action::Project(Self { keep, drop }),
        }
    }

    /// Returns the action for an entry of a map.
    pub(crate) fn of_key(self, key: &[u8]) -> Action<'p, K> {
        if self.drop.is_some_and(|node| node.has_key(key)) {
            return Action::Drop;
        }
        let keep = self.keep.filter(|node| !node.has_key(key));
        let drop = self.drop.filter(|node| !node.fields.is_empty());
        match (keep, drop) {
            (Some(keep), _) if keep.fields.is_empty() => Action::Drop,
            (None, None) => Action::Keep,
            _ => Action::Project(Self { keep, drop }),
        }
    }

    pub(crate) fn has_keys(self) -> bool {
        [self.keep, self.drop].into_iter().flatten().any(|node| !node.keys.is_empty())
    }
}

/// Paths, as trees for both forms of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTrees {
    pub(crate) numbers: Node<u32>,
    pub(crate) names: Node<Box<str>>,
}

impl PathTrees {
    pub(crate) fn add(&mut self, path: Steps<'_>) {
        self.numbers.add(path.numbers.iter().copied(), path.key);
        self.names.add(path.names().map(Box::from), None);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ProjectionRules<'p> {
    /// `None` keeps all.
    pub(crate) keep: Option<&'p PathTrees>,
    pub(crate) drop: &'p PathTrees,
}

impl<'p> ProjectionRules<'p> {
    pub(crate) fn by_number(self) -> Rules<'p, u32> {
        Rules { keep: self.keep.map(|keep| &keep.numbers), drop: Some(&self.drop.numbers) }
    }

    pub(crate) fn by_name(self) -> Rules<'p, Box<str>> {
        Rules { keep: self.keep.map(|keep| &keep.names), drop: Some(&self.drop.names) }
    }
}
