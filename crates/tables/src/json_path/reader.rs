//! Reads of an object only what paths need of it: see `needs.rs`.

use listwatch::{ItemError, ItemRef, Projection, TypeMeta};
use serde_json::Value;

use super::JsonPath;
use super::items::ItemsTemplate;
use super::list::ListTemplate;
use super::needs::{Needs, Places};
use super::template::JsonPathTemplate;

/// Reads objects as values that have what some paths and templates find in them, and little else.
///
/// It reads the encoded bytes, and skips the fields that no path names without checking them. What a path or a template
/// finds and prints of the value is what it would find and print of the whole object. Only a template
/// [with required keys](JsonPathTemplate::with_required_keys), and a recursive descent or a wildcard of the root, need
/// the whole object.
///
/// ```
/// use listwatch::{Encoding, ItemRef};
/// use listwatch_tables::json_path::{JsonPath, ObjectReader};
///
/// let paths = [JsonPath::parse(".metadata.name")?, JsonPath::parse(".spec.parts[*].size")?];
/// let mut reader = ObjectReader::of_paths(&paths);
/// let widget = br#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"1"},
///     "spec":{"color":"red","parts":[{"size":1,"at":2},{"size":3}]}}"#;
/// let (value, _) = reader.read(&ItemRef::new(Encoding::Json, widget))?;
/// assert_eq!(paths[1].find(&value)?, [1, 3]);
/// assert!(value["spec"].get("color").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ObjectReader {
    needs: Needs,
    /// For objects of this type. `None` reads them whole.
    projection: Option<(TypeMeta, Option<Projection>)>,
    copy: Vec<u8>,
    json: Vec<u8>,
}

impl ObjectReader {
    /// Creates a reader for these paths.
    pub fn of_paths<'p>(paths: impl IntoIterator<Item = &'p JsonPath>) -> Self {
        Self::new(needs_of(paths))
    }

    /// Creates a reader for a template of one object.
    #[must_use]
    pub fn of_template(template: &JsonPathTemplate) -> Self {
        let mut needs = Needs::default();
        template.add_needs(&mut needs);
        Self::new(needs)
    }

    /// Creates a reader for the items of a List.
    #[must_use]
    pub fn of_list(template: &ListTemplate) -> Self {
        let mut needs = Needs::default();
        template.add_needs(&mut needs);
        Self::new(needs)
    }

    /// Creates a reader for the items of a template.
    #[must_use]
    pub fn of_items(template: &ItemsTemplate) -> Self {
        let mut needs = Needs::default();
        template.add_needs(&mut needs);
        Self::new(needs)
    }

    fn new(needs: Needs) -> Self {
        Self { needs, projection: None, copy: Vec::new(), json: Vec::new() }
    }

    /// Returns true if it reads only the metadata of objects.
    #[must_use]
    pub fn reads_only_metadata(&self) -> bool {
        self.needs.is_in_metadata()
    }

    /// Returns true if the table of fields has each field that the paths name in objects of this type, so that objects
    /// in protobuf have all that is read.
    #[must_use]
    pub fn reads_only_known_fields(&self, of: &TypeMeta) -> bool {
        self.needs.is_known(of)
    }

    /// Reads an object. Also returns the number of fields in the parts that were read which have no name, because the
    /// table of fields does not have them: see [`ItemRef::to_json`].
    ///
    /// It keeps two buffers as large as the largest object so far.
    ///
    /// # Errors
    ///
    /// As of [`ItemRef::to_json`]. Faults in bytes that no path needs are not found.
    pub fn read(&mut self, item: &ItemRef<'_>) -> Result<(Value, u64), ItemError> {
        if self.projection.as_ref().is_none_or(|(of, _)| of != item.type_meta()) {
            self.projection = Some((item.type_meta().clone(), self.needs.projection(item.type_meta())));
        }
        if let Some((_, Some(projection))) = &self.projection
            && let Ok(read) = read_projected(item, projection, &mut self.copy, &mut self.json)
        {
            return Ok(read);
        }
        // Also after an error, so that it is that of the whole object.
        read_json(item, &mut self.json)
    }
}

/// Returns what keeps the parts that paths need of objects of this type, and the name; `None` if they need all.
pub(crate) fn needed_by(paths: &[JsonPath], of: &TypeMeta) -> Option<Projection> {
    needs_of(paths).projection(of)
}

fn needs_of<'p>(paths: impl IntoIterator<Item = &'p JsonPath>) -> Needs {
    let mut needs = Needs::default();
    paths.into_iter().for_each(|path| needs.add_values(&path.steps, Places::root()));
    needs
}

/// Reads the part of an object that a projection keeps.
fn read_projected(
    item: &ItemRef<'_>,
    projection: &Projection,
    copy: &mut Vec<u8>,
    json: &mut Vec<u8>,
) -> Result<(Value, u64), ItemError> {
    copy.clear();
    item.project_into(projection, copy)?;
    read_json(&item.with_bytes(copy), json)
}

fn read_json(item: &ItemRef<'_>, json: &mut Vec<u8>) -> Result<(Value, u64), ItemError> {
    json.clear();
    let unknown_fields = item.to_json(json)?;
    Ok((serde_json::from_slice(json).map_err(ItemError::other)?, unknown_fields))
}
