//! One mirrored collection.

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;

use listwatch::client::{Client, Resource, Selection};
use listwatch::internal::chain;
use listwatch::schema::Message;
use listwatch::{Encoding, FieldPath, FieldSelector, ItemRef, Projection, TypeMeta};
use listwatch_cache::{
    Cache, ChangeLogLimits, FileError, PreparedReflector, Reflector, StorageFormat, Store, Strategy,
};
use listwatch_mirror::Mirrored;
use tokio::task::spawn_blocking;

use super::lookup::{FoundResource, Lookup};
use crate::failure::Failure;
use crate::field_paths::{parse_drop_path, parse_path};
use crate::notices;

/// One mirrored collection.
pub struct MirroredCollection {
    pub resource: Resource,
    /// `None` for all namespaces, or for a resource without namespaces.
    pub namespace: Option<String>,
    pub cache: Cache<[u8]>,
    /// The store of the cache.
    pub store: Store<[u8]>,
    /// Indexes by the paths of their field selectors.
    pub indexes: Vec<(String, FieldPath)>,
    /// The file in which the cache is saved.
    pub file: Option<PathBuf>,
}

impl MirroredCollection {
    /// Returns a collection without indexes and without a file, and its reflector.
    pub fn new(
        client: &Client,
        resource: Resource,
        namespace: Option<String>,
        format: StorageFormat,
        projection: Option<Projection>,
        log: ChangeLogLimits,
        strategy: Option<Strategy>,
    ) -> (Self, PreparedReflector<[u8]>) {
        // Without a schema, protobuf can be converted to nothing else.
        let selection = if has_schema(&type_meta(&resource)) { Selection::all() } else { Selection::all().json() };
        let store = Store::new(format);
        let reflector = Reflector::<[u8]>::new(client, &resource).selection(selection).store(store.clone());
        let mut reflector = reflector.change_log(log);
        if let Some(projection) = projection {
            reflector = reflector.projection(projection);
        }
        if let Some(namespace) = &namespace {
            reflector = reflector.namespace(namespace);
        }
        if let Some(strategy) = strategy {
            reflector = reflector.strategy(strategy);
        }
        let reflector = reflector.prepare();
        let cache = reflector.cache();
        (Self { resource, namespace, cache, store, indexes: Vec::new(), file: None }, reflector)
    }

    /// Returns the resource for the mirror, with its indexes.
    pub fn mirrored(&self) -> Mirrored {
        let mirrored = Mirrored::new(self.cache.clone(), self.resource.clone(), self.namespace.clone());
        self.indexes.iter().fold(mirrored, |mirrored, (path, field)| mirrored.index(path, field.clone()))
    }

    /// Returns the failure of this collection.
    pub fn failure(&self, error: &(dyn Error + 'static)) -> Failure {
        Failure::Error(format!("{}: {}", self.resource, chain(error)))
    }

    /// Saves the cache, if it is complete and has a file.
    pub async fn save(&self) {
        let Some(file) = &self.file else { return };
        let (cache, path) = (self.cache.clone(), file.clone());
        let saved = spawn_blocking(move || cache.save(path)).await;
        match saved {
            Ok(Ok(()) | Err(FileError::Incomplete)) | Err(_) => {}
            Ok(Err(error)) => {
                notices::warn(&format!("cannot save {}: {}", file.to_string_lossy(), chain(&error)));
            }
        }
    }
}

/// Returns the projection of each resource. A path that one resource does not have applies to the others.
///
/// A path that none of them has is an error, unless it may be of a resource that is missing.
pub fn parse_projections(drop: &[String], lookup: &Lookup) -> Result<Vec<Option<Projection>>, Failure> {
    let found = &lookup.found;
    let mut projections: Vec<Option<Projection>> = vec![None; found.len()];
    for path in drop {
        let parsed: Vec<_> = found.iter().map(|(_, resource)| parse_drop_path(path, &type_meta(resource))).collect();
        for (projection, path) in projections.iter_mut().zip(accept_any(parsed, lookup)?) {
            if let Some(path) = path {
                *projection = Some(projection.take().unwrap_or_default().drop(&path));
            }
        }
    }
    Ok(projections)
}

/// A path, of all resources or of the one that the user typed.
#[derive(Clone)]
pub struct IndexArg {
    resource: Option<String>,
    path: String,
}

impl FromStr for IndexArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (resource, path) = match text.split_once(':') {
            Some((resource, path)) => (Some(resource.to_owned()), path),
            None => (None, text),
        };
        if path.is_empty() || path.contains('=') || resource.as_ref().is_some_and(String::is_empty) {
            return Err("expected PATH or RESOURCE:PATH");
        }
        Ok(Self { resource, path: path.to_owned() })
    }
}

/// Returns the indexes of each resource. A path that one resource cannot be selected by applies to the others.
///
/// A path that none of them can be selected by is an error, unless it may be of a resource that is missing.
pub fn parse_indexes(by: &[IndexArg], lookup: &Lookup) -> Result<Vec<Vec<(String, FieldPath)>>, Failure> {
    let found = &lookup.found;
    let mut indexes = vec![Vec::new(); found.len()];
    for IndexArg { resource: of, path } in by {
        let is_meant = |(typed, resource): &FoundResource| {
            of.as_ref().is_none_or(|of| of == typed || *of == resource.to_string() || of == resource.plural())
        };
        let parsed: Vec<_> = found
            .iter()
            .filter(|found| is_meant(found))
            .map(|(_, resource)| parse_index_path(path, resource).map_err(|reason| format!("--index {path}: {reason}")))
            .collect();
        if let (true, Some(of)) = (parsed.is_empty() && lookup.missing.is_empty(), of) {
            return Err(Failure::Usage(format!("--index {of}:{path}: {of} is not mirrored")));
        }
        let meant = indexes.iter_mut().zip(found).filter(|(_, found)| is_meant(found));
        for ((indexes, _), field) in meant.zip(accept_any(parsed, lookup)?) {
            if let Some(field) = field.filter(|_| indexes.iter().all(|(other, _)| other != path)) {
                indexes.push((path.clone(), field));
            }
        }
    }
    Ok(indexes)
}

/// Returns the results of all resources; the first error if there are only errors, and no resource is missing.
fn accept_any<T>(parsed: Vec<Result<T, String>>, lookup: &Lookup) -> Result<Vec<Option<T>>, Failure> {
    let is_known = !lookup.missing.is_empty() || parsed.iter().any(Result::is_ok);
    parsed
        .into_iter()
        .map(|path| if is_known { Ok(path.ok()) } else { path.map(Some) })
        .collect::<Result<_, _>>()
        .map_err(Failure::Usage)
}

/// Parses the path of a field selector. The mirror forwards the selectors of fields that it cannot select by, so an
/// index would be unused.
fn parse_index_path(path: &str, resource: &Resource) -> Result<FieldPath, String> {
    let of = type_meta(resource);
    let field = parse_path(path, &of)?;
    let empty = ItemRef::empty(if has_schema(&of) { Encoding::Protobuf } else { Encoding::Json });
    let selector = FieldSelector::new().equal(path, "");
    let selected = selector.matches(&empty.with_type_meta(&of));
    selected.map(|_| field).map_err(|_| format!("{} cannot be selected by this field", resource.kind()))
}

fn type_meta(resource: &Resource) -> TypeMeta {
    TypeMeta::new(resource.api_version(), resource.kind())
}

fn has_schema(of: &TypeMeta) -> bool {
    Message::of(&of.api_version, &of.kind).is_some()
}
