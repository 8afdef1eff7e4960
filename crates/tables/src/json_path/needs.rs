//! What paths need of an object.
//!
//! # Advice
//!
//! Paths are applied to a value of `serde_json`, and so the evaluation knows nothing of encodings. An object is made
//! into that value from a copy of its bytes that has only the fields which the paths name: [`Projection`] walks to them
//! and skips the rest by its length. A Pod with three columns is then read in a tenth of the time.
//!
//! The result must be that of the whole object, so a field that decides about an error stays: arrays keep all elements,
//! messages and objects stay when they lose all fields, and a map with an index after it stays whole. What cannot be
//! said by names, such as a wildcard or a recursive descent, needs the whole value there. `tests/json_path_reader.rs`
//! compares both.

use listwatch::schema::Message;
use listwatch::{FieldPath, Projection, TypeMeta};

use super::ast::{Filter, Node, Step};

/// A place of every object.
const NAME: FieldPath = FieldPath::new("metadata.name", &[1, 1]);

/// More places than this are read as the whole object. Unions double them.
const MAX_PLACES: usize = 64;

/// What paths need of an object.
#[derive(Debug, Default)]
pub(super) struct Needs {
    whole: bool,
    /// The places that they need with all that is in them.
    places: Places,
}

/// The places that steps have reached.
#[derive(Debug, Default, Clone)]
pub(super) struct Places(Vec<Place>);

/// Names from the root. Arrays on the way have none: all their elements count.
type Place = Vec<PlaceName>;

#[derive(Debug, Clone)]
struct PlaceName {
    name: Box<str>,
    /// True if an index or a filter comes after the name. It is an error if the value is not an array.
    indexed: bool,
}

impl Places {
    /// Returns the place of the whole object.
    pub(super) fn root() -> Self {
        Self(vec![Place::new()])
    }

    fn step_into(&mut self, name: &str) {
        self.0.iter_mut().for_each(|place| place.push(PlaceName { name: name.into(), indexed: false }));
    }

    fn index(&mut self) {
        self.0.iter_mut().filter_map(|place| place.last_mut()).for_each(|name| name.indexed = true);
    }
}

impl Needs {
    /// Adds the whole object.
    pub(super) fn add_all(&mut self) {
        self.whole = true;
    }

    /// Adds what steps find from these places on, with all that is in it.
    pub(super) fn add_values(&mut self, steps: &[Step], from: Places) {
        let found = self.add_steps(steps, from);
        self.places.0.extend(found.0);
        self.whole |= self.places.0.len() > MAX_PLACES;
    }

    pub(super) fn add_nodes(&mut self, nodes: &[Node], from: &Places) {
        for node in nodes {
            match node {
                _ if self.whole => return,
                Node::Text(_) => {}
                Node::Print(steps) => self.add_values(steps, from.clone()),
                Node::Range(steps, body) => {
                    let found = self.add_steps(steps, from.clone());
                    self.add_nodes(body, &found);
                }
            }
        }
    }

    pub(super) fn add_filter(&mut self, filter: &Filter, from: &Places) {
        let right = filter.comparison.iter().map(|(_, right)| right);
        [&filter.left].into_iter().chain(right).for_each(|steps| self.add_values(steps, from.clone()));
    }

    /// Adds what steps need on the way, and returns the places at which they end.
    pub(super) fn add_steps(&mut self, steps: &[Step], from: Places) -> Places {
        let mut places = from;
        for (at, step) in steps.iter().enumerate() {
            match step {
                // Nothing was found before that it could depend on.
                Step::Text(_) | Step::Literal(_) if at == 0 => places = Places::default(),
                Step::Field(name) => places.step_into(name),
                Step::Slice(_) => places.index(),
                Step::Filter(filter) => {
                    places.index();
                    self.add_filter(filter, &places);
                }
                Step::Union(parts) => {
                    let found = parts.iter().flat_map(|part| self.add_steps(part, places.clone()).0);
                    places = Places(found.collect());
                }
                // What they find depends on the number of values before them, or on all that is in these.
                Step::Text(_) | Step::Literal(_) | Step::Wildcard | Step::Recursive => {
                    self.places.0.append(&mut places.0);
                }
            }
            self.whole |= places.0.len().max(self.places.0.len()) > MAX_PLACES;
            if self.whole {
                return Places::default();
            }
        }
        places
    }

    /// Returns what keeps the places of objects of this type, and the name; `None` if that is the whole object.
    pub(super) fn projection(&self, of: &TypeMeta) -> Option<Projection> {
        if self.whole {
            return None;
        }
        // It keeps something, because a projection that keeps nothing keeps all.
        let mut projection = Projection::new().keep(&NAME);
        for place in &self.places.0 {
            let first = place.first()?;
            // A projection always keeps these two, and protobuf has them outside of the object.
            if !matches!(&*first.name, "apiVersion" | "kind") {
                projection = projection.keep(&field_path(place, of)?);
            }
        }
        Some(projection)
    }

    /// Returns true if all places are in the metadata.
    pub(super) fn is_in_metadata(&self) -> bool {
        let is_in = |place: &Place| place.first().is_some_and(|first| &*first.name == "metadata");
        !self.whole && self.places.0.iter().all(is_in)
    }

    /// Returns true if the table of fields has the fields on the way to each place.
    pub(super) fn is_known(&self, of: &TypeMeta) -> bool {
        let Some(message) = Message::of(&of.api_version, of.item_kind()) else { return false };
        !self.whole && self.places.0.iter().all(|place| is_known(place, message))
    }
}

/// Returns true if the table has the fields on the way to a place. A map may have any key, and a message that is a
/// single value in JSON has no fields.
fn is_known(place: &[PlaceName], message: &'static Message) -> bool {
    match place.first() {
        None => return false,
        Some(first) if matches!(&*first.name, "apiVersion" | "kind") => return true,
        Some(_) => {}
    }
    let mut message = message;
    for name in place {
        match message.path(&name.name).and_then(|mut path| path.pop()) {
            None => return false,
            Some(field) if field.is_map() => return true,
            Some(field) => match field.message().filter(|message| message.is_object()) {
                Some(next) => message = next,
                None => return true,
            },
        }
    }
    // A message that is read whole may have fields which only newer releases have.
    false
}

/// Returns the path to a place, or to the nearest value around it that a path can lead to.
fn field_path(place: &[PlaceName], of: &TypeMeta) -> Option<FieldPath> {
    // In the text of a path, other names have a meaning.
    let is_plain = |name: &&PlaceName| !name.name.is_empty() && !name.name.contains(['.', '[', '"']);
    let plain = place.iter().take_while(is_plain).count();
    (1..=plain).rev().find_map(|count| {
        let (names, rest) = place.split_at_checked(count)?;
        let text = names.iter().map(|name| &*name.name).collect::<Vec<_>>().join(".");
        // It would be a path of numbers.
        if text.starts_with(|c: char| c.is_ascii_digit()) || !leads_through_objects(&text, of) {
            return None;
        }
        let path = FieldPath::parse(&text, of).ok()?;
        // Only a path to a map can continue by a key, or a path by names alone.
        let has_keys = !names.last()?.indexed && FieldPath::parse(&format!("{text}[\"\"]"), of).is_ok();
        Some(match rest.first() {
            Some(key) if has_keys => path.key(key.name.to_string()),
            _ => path,
        })
    })
}

/// Returns true unless the path is known to lead through a message that is a single value in JSON, such as a time.
fn leads_through_objects(path: &str, of: &TypeMeta) -> bool {
    let known = Message::of(&of.api_version, of.item_kind());
    let Some(message) = known.or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata")) else { return true };
    let Some(fields) = message.path(path) else { return true };
    let parents = fields.split_last().map(|(_, parents)| parents).unwrap_or_default();
    parents.iter().all(|field| field.message().is_none_or(Message::is_object))
}
