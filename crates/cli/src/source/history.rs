//! A history at a point of the past as a source.

use std::path::Path;

use jiff::Timestamp;
use listwatch::TypeMeta;
use listwatch::client::Resource;
use listwatch::compare_resource_versions;
use listwatch_history::{History, HistoryError, PastCollection, PastObject, PastObjects, Point};

use super::definitions::resources_of;
use super::objects::{Cursor, ListedResource, Object, ObjectSource};
use crate::at::zoned;
use crate::notices;

pub struct HistorySource {
    history: History,
    point: Point,
    /// The newest version of a collection at the point.
    version: String,
    time: Timestamp,
}

impl HistorySource {
    /// Opens the history in a folder. A point that it knows of no collection is an error at once.
    pub fn open(dir: &Path, point: Point) -> Result<Self, String> {
        let text = |error: HistoryError| error.to_string();
        let history = History::open(dir).map_err(text)?;
        let (mut newest, mut unknown): (Option<PastCollection>, _) = (None, None);
        for resource in history.resources().map_err(text)? {
            match history.at(&resource, &point) {
                Ok(past) => {
                    let is_newer = |known: &PastCollection| {
                        compare_resource_versions(known.resource_version(), past.resource_version())
                            .is_some_and(std::cmp::Ordering::is_lt)
                    };
                    if newest.as_ref().is_none_or(is_newer) {
                        newest = Some(past);
                    }
                }
                // Nobody asked for the definitions, which are recorded with the others.
                Err(_) if unknown.is_some() && resource == Resource::CUSTOM_RESOURCE_DEFINITIONS => {}
                Err(error) => unknown = Some(error),
            }
        }
        let Some(newest) = newest else {
            return Err(unknown.map_or_else(|| "the history has no collections".to_owned(), text));
        };
        let (version, time) = (newest.resource_version().to_owned(), newest.time());
        notices::print_labelled("reading:", &format!("the history at {}, version {version}", zoned(time)));
        Ok(Self { history, point, version, time })
    }

    /// Opens the history at a version, which it may not know. Ages are relative to the present.
    pub fn at_version(dir: &Path, version: String) -> Result<Self, String> {
        let history = History::open(dir).map_err(|error| error.to_string())?;
        Ok(Self { history, point: Point::Version(version.clone()), version, time: Timestamp::now() })
    }

    /// Returns true if the history knows the collection at its point.
    pub fn knows(&self, group: &str, plural: &str) -> bool {
        let resources = self.history.resources().unwrap_or_default();
        let found = resources.iter().find(|resource| resource.group() == group && resource.plural() == plural);
        found.is_some_and(|resource| self.at(resource).is_ok())
    }

    fn at(&self, resource: &Resource) -> Result<PastCollection, String> {
        self.history.at(resource, &self.point).map_err(|error| error.to_string())
    }
}

impl ObjectSource for HistorySource {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn now(&self) -> Timestamp {
        self.time
    }

    fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Box<dyn Cursor>, String> {
        let past = self.at(resource)?;
        let type_meta = TypeMeta::new(past.resource().api_version(), past.resource().kind());
        let named = name.filter(|_| namespace.is_some() || !resource.is_namespaced());
        if let Some(name) = named {
            let found = past.get((namespace.unwrap_or_default(), name)).map_err(|error| error.to_string())?;
            return Ok(Box::new(OneObject(found.map(|found| object(&found, &type_meta)))));
        }
        let objects = namespace.map_or_else(|| past.iter(), |namespace| past.namespace(namespace));
        Ok(Box::new(HistoryCursor { objects, type_meta }))
    }

    fn custom_resources(&self) -> Result<Vec<ListedResource>, String> {
        let recorded = self.history.resources().map_err(|error| error.to_string())?;
        let mut resources = Vec::new();
        if recorded.contains(&Resource::CUSTOM_RESOURCE_DEFINITIONS) {
            // Definitions change rarely, and their watch may have been quiet, so the newest ones serve a point that is
            // unknown of them. A list of the definitions themselves still says that the point is unknown.
            let at = |point| self.history.at(&Resource::CUSTOM_RESOURCE_DEFINITIONS, point);
            let past = at(&self.point).or_else(|_| at(&Point::Newest)).map_err(|error| error.to_string())?;
            let type_meta = TypeMeta::new(past.resource().api_version(), past.resource().kind());
            let mut definitions = HistoryCursor { objects: past.iter(), type_meta };
            while let Some(definition) = definitions.next()? {
                resources.extend(resources_of(&definition.json()?));
            }
        }
        // The objects are in the version that was recorded, which need not be the one that is stored.
        for resource in recorded {
            let is_same = |listed: &ListedResource| {
                listed.resource.group() == resource.group() && listed.resource.plural() == resource.plural()
            };
            if let Some(mut listed) = resources.iter().find(|listed| is_same(listed)).cloned() {
                resources.retain(|listed| !is_same(listed));
                listed.resource = resource;
                resources.push(listed);
            } else if !Resource::BUILT_IN.contains(&resource) {
                let singular = resource.kind().to_lowercase();
                let (short_names, categories) = (Vec::new(), Vec::new());
                resources.push(ListedResource { resource, singular, short_names, categories, definition: None });
            }
        }
        Ok(resources)
    }

    fn found(&self) -> Result<Vec<String>, String> {
        let resources = self.history.resources().map_err(|error| error.to_string())?;
        let has_objects = |resource: &&Resource| self.at(resource).is_ok_and(|past| past.iter().next().is_some());
        Ok(resources.iter().filter(has_objects).map(ToString::to_string).collect())
    }
}

fn object(found: &PastObject, type_meta: &TypeMeta) -> Object {
    Object { encoding: found.encoding(), type_meta: type_meta.clone(), bytes: found.bytes().to_vec() }
}

/// The object that was requested by its name.
struct OneObject(Option<Object>);

impl Cursor for OneObject {
    fn next(&mut self) -> Result<Option<Object>, String> {
        Ok(self.0.take())
    }
}

struct HistoryCursor {
    objects: PastObjects,
    type_meta: TypeMeta,
}

impl Cursor for HistoryCursor {
    fn next(&mut self) -> Result<Option<Object>, String> {
        let Some(next) = self.objects.next() else { return Ok(None) };
        next.map(|found| Some(object(&found, &self.type_meta))).map_err(|error| error.to_string())
    }
}
