//! A page of a list, as the body of a response.

use jiff::Timestamp;
use listwatch::encode::Encoder;
use listwatch::{Encoding, ItemError, ItemRef, ListMeta, TypeMeta};
use listwatch_tables::{Printer, write_go_json};
use serde_json::{Value, json};

use super::objects::{ListedResource, Object};
use super::request::Form;

/// A definition without columns, whose Tables have the columns of every resource: name and age.
const NO_COLUMNS: &[u8] = br#"{"spec":{"versions":[{"name":"v1"}]}}"#;

/// Writes the objects of one resource.
pub struct PageWriter<'a> {
    pub listed: &'a ListedResource,
    pub form: Form,
    /// Protobuf is used if all objects of a page are of the requested version.
    pub accepts_protobuf: bool,
    /// What a row of a Table has in addition to its cells.
    pub include_object: &'a str,
    /// The time to which ages are relative.
    pub now: Timestamp,
}

/// A body with its encoding.
pub struct Body {
    pub encoding: Encoding,
    pub bytes: Vec<u8>,
}

impl PageWriter<'_> {
    pub fn list(&self, objects: &[Object], meta: &ListMeta) -> Result<Body, String> {
        if self.form == Form::Table {
            return self.table(objects, Some(meta));
        }
        let encoding = self.encoding(objects);
        let encoder = self.encoder(encoding);
        let items = self.items(objects, encoding)?;
        let items_len =
            items.iter().map(|item| encoder.item_len(&item.item())).sum::<Result<u64, _>>().map_err(text)?;
        let mut bytes = Vec::new();
        let mut list = encoder.list_head(meta, items_len, &mut bytes);
        for item in &items {
            encoder.item(&mut list, &item.item(), &mut bytes).map_err(text)?;
        }
        encoder.list_tail(list, meta, &mut bytes);
        Ok(Body { encoding, bytes })
    }

    pub fn object(&self, object: &Object) -> Result<Body, String> {
        if self.form == Form::Table {
            return self.table(std::slice::from_ref(object), None);
        }
        let encoding = self.encoding(std::slice::from_ref(object));
        let mut bytes = Vec::new();
        let whole = self.form == Form::Objects;
        if whole && !self.is_requested(object) {
            // As it is stored, in another version.
            bytes.extend_from_slice(&object.json()?);
        } else {
            self.encoder(encoding).object(&object.item(), &mut bytes).map_err(text)?;
        }
        Ok(Body { encoding, bytes })
    }

    pub fn encoder(&self, encoding: Encoding) -> Encoder {
        let resource = &self.listed.resource;
        let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
        let encoder = Encoder::new(encoding, type_meta, format!("{}List", resource.kind()));
        if self.form == Form::Metadata { encoder.metadata_only() } else { encoder }
    }

    fn encoding(&self, objects: &[Object]) -> Encoding {
        let is_protobuf = |object: &Object| object.encoding == Encoding::Protobuf && self.is_requested(object);
        let is_possible = self.accepts_protobuf && objects.iter().all(is_protobuf) && !objects.is_empty();
        if is_possible { Encoding::Protobuf } else { Encoding::Json }
    }

    fn is_requested(&self, object: &Object) -> bool {
        let resource = &self.listed.resource;
        object.type_meta.api_version == resource.api_version() && object.type_meta.kind == resource.kind()
    }

    /// Returns the objects of a list. One of another version is in JSON, which says its version.
    fn items<'o>(&self, objects: &'o [Object], encoding: Encoding) -> Result<Vec<Cell<'o>>, String> {
        let item = |object: &'o Object| {
            if self.is_requested(object) || encoding == Encoding::Protobuf || self.form == Form::Metadata {
                return Ok(Cell::Kept(object));
            }
            Ok(Cell::Json(object.json()?.into_owned()))
        };
        objects.iter().map(item).collect()
    }

    fn table(&self, objects: &[Object], meta: Option<&ListMeta>) -> Result<Body, String> {
        let resource = &self.listed.resource;
        let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
        let printer = match &self.listed.definition {
            Some(definition) => Printer::for_custom_resource(definition, resource.version()).ok(),
            None => Printer::for_kind(&type_meta),
        };
        let printer = printer.or_else(|| Printer::for_custom_resource(NO_COLUMNS, "v1").ok());
        let printer = printer.ok_or("no columns")?;
        let whole = Encoder::new(Encoding::Json, type_meta, "");
        let encoder = match self.include_object {
            "None" => None,
            "Object" => Some(whole),
            _ => Some(whole.metadata_only()),
        };
        let version = |object: &Object| object.item().meta().map(|meta| meta.resource_version().into_owned());
        let own = objects.first().map(version).transpose().map_err(text)?.unwrap_or_default();
        let meta = meta.map_or_else(|| json!({"resourceVersion": own}), table_meta);
        let mut bytes = br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":"#.to_vec();
        let write = |bytes: &mut Vec<u8>| -> Result<(), serde_json::Error> {
            write_go_json(&meta, bytes)?;
            bytes.extend_from_slice(br#","columnDefinitions":"#);
            write_go_json(printer.columns(), bytes)
        };
        write(&mut bytes).map_err(|error| error.to_string())?;
        bytes.extend_from_slice(br#","rows":["#);
        for (index, object) in objects.iter().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            let row = printer.row(&object.item(), self.now).map_err(text)?;
            write_go_json(&row, &mut bytes).map_err(|error| error.to_string())?;
            bytes.pop_if(|last| *last == b'}');
            bytes.extend_from_slice(br#","object":"#);
            match &encoder {
                Some(encoder) => drop(encoder.object(&object.item(), &mut bytes).map_err(text)?),
                None => bytes.extend_from_slice(b"null"),
            }
            bytes.push(b'}');
        }
        bytes.extend_from_slice(b"]}\n");
        Ok(Body { encoding: Encoding::Json, bytes })
    }
}

/// An object of a list, as it is stored or converted.
enum Cell<'o> {
    Kept(&'o Object),
    Json(Vec<u8>),
}

impl Cell<'_> {
    fn item(&self) -> ItemRef<'_> {
        match self {
            Self::Kept(object) => object.item(),
            Self::Json(json) => ItemRef::new(Encoding::Json, json),
        }
    }
}

fn table_meta(meta: &ListMeta) -> Value {
    let mut value = json!({"resourceVersion": meta.resource_version});
    if !meta.continue_token.is_empty() {
        value["continue"] = meta.continue_token.clone().into();
    }
    value
}

#[expect(clippy::needless_pass_by_value, reason = "it converts errors")]
fn text(error: ItemError) -> String {
    listwatch::internal::chain(&error)
}
