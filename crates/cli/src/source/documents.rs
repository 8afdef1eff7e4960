//! The objects in a text or a body: lists and objects in JSON or YAML, and recorded lists in protobuf.
//!
//! Everything is read from front to back. Of a list, one object is in memory; of a YAML document that is no list, the
//! document.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;

use flate2::bufread::MultiGzDecoder;
use listwatch::{Encoding, ItemRef, ListReader, TypeMeta};
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::objects::Object;
use super::yaml::yaml_to_json;

/// The bytes that are looked at to recognize a file.
const SNIFFED: usize = 64 << 10;
/// The largest YAML document or item, so that a hostile file does not take its size in memory.
const MAX_YAML: usize = 64 << 20;

/// What happens to each object.
pub type Visit<'a> = dyn FnMut(Object) -> ControlFlow<()> + 'a;

/// What a file was.
#[derive(Debug, PartialEq, Eq)]
pub enum Contents {
    Objects,
    /// Nothing that looks like an object, such as a log.
    Other,
}

/// A file after decompression, whose beginning can be looked at.
pub struct Peeked<'a> {
    start: Vec<u8>,
    rest: Box<dyn Read + 'a>,
}

impl<'a> Peeked<'a> {
    /// Decompresses gzip or zstd, also one in the other, and reads the beginning.
    pub fn open(reader: impl Read + 'a) -> io::Result<Self> {
        let mut reader: Box<dyn Read + 'a> = Box::new(reader);
        for _ in 0..3 {
            let start = read_start(&mut *reader, SNIFFED)?;
            let is_gzip = start.starts_with(&[0x1F, 0x8B]);
            let is_zstd = start.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]);
            if !is_gzip && !is_zstd {
                return Ok(Self { start, rest: reader });
            }
            let whole = BufReader::new(io::Cursor::new(start).chain(reader));
            reader = if is_gzip {
                Box::new(MultiGzDecoder::new(whole))
            } else {
                Box::new(zstd::Decoder::with_buffer(whole)?)
            };
        }
        Ok(Self { start: Vec::new(), rest: reader })
    }

    /// Returns true for a tar archive.
    pub fn is_tar(&self) -> bool {
        self.start.get(257..262) == Some(b"ustar")
    }

    pub fn into_reader(self) -> impl Read + 'a {
        io::Cursor::new(self.start).chain(self.rest)
    }

    /// Calls `visit` with each object, until it breaks.
    pub fn visit_objects(self, visit: &mut Visit<'_>) -> Result<Contents, String> {
        let start = self.start.trim_ascii_start();
        if self.start.starts_with(b"k8s\0") {
            return visit_list(self.into_reader(), visit).map(|()| Contents::Objects);
        }
        if start.starts_with(b"{") {
            return if is_json_list(start) {
                visit_list(self.into_reader(), visit).map(|()| Contents::Objects)
            } else {
                visit_json(self.into_reader(), visit)
            };
        }
        if start.starts_with(b"[") {
            return visit_array(self.into_reader(), visit);
        }
        if is_yaml(start) {
            return visit_yaml(BufReader::new(self.into_reader()), visit).map(|()| Contents::Objects);
        }
        Ok(Contents::Other)
    }
}

fn read_start(reader: &mut dyn Read, len: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(len as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns true if the beginning of a JSON object shows that it is a list: its kind, or a member `items` with an array.
fn is_json_list(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let mut depth = 0_u32;
    let mut key = String::new();
    let mut rest = &*text;
    while let Some(at) = rest.find(['{', '}', '[', ']', '"']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        match mark {
            b'{' | b'[' => {
                if depth == 1 && mark == b'[' && key == "items" {
                    return true;
                }
                depth += 1;
                rest = after;
            }
            b'"' => {
                let Some((string, after)) = split_string(after) else { return false };
                if depth == 1 {
                    if after.trim_start().starts_with(':') {
                        string.clone_into(&mut key);
                    } else if key == "kind" {
                        return string.ends_with("List");
                    }
                }
                rest = after;
            }
            _ => {
                depth = depth.saturating_sub(1);
                rest = after;
            }
        }
    }
    false
}

/// Splits the contents of a JSON string from what follows its closing quote.
fn split_string(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// Returns true if a text may be YAML of Kubernetes: a line of the first ones begins with `apiVersion:` or `kind:`,
/// also as an element of a sequence.
fn is_yaml(start: &[u8]) -> bool {
    let has_key = |line: &[u8]| {
        let line = line.strip_prefix(b"- ").unwrap_or(line);
        line.starts_with(b"apiVersion:") || line.starts_with(b"kind:")
    };
    start.split(|byte| *byte == b'\n').take(200).any(has_key)
}

fn visit_list(reader: impl Read, visit: &mut Visit<'_>) -> Result<(), String> {
    let mut own = |item: ItemRef<'_>| -> Result<Object, listwatch::ItemError> {
        let own = item.own_type_meta()?.filter(|own| !own.kind.is_empty());
        let type_meta =
            own.unwrap_or_else(|| TypeMeta::new(&item.type_meta().api_version, item.type_meta().item_kind()));
        Ok(Object { encoding: item.encoding(), type_meta, bytes: item.bytes().to_vec() })
    };
    let mut items = ListReader::with(reader, &mut own).accept_json();
    for item in &mut items {
        let object = item.map_err(|error| listwatch::internal::chain(&error))?;
        if visit(object).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads one or more JSON objects, one after the other, which may be lists as well.
fn visit_json(reader: impl Read, visit: &mut Visit<'_>) -> Result<Contents, String> {
    let mut contents = Contents::Other;
    let values = serde_json::Deserializer::from_reader(BufReader::new(reader)).into_iter::<Box<RawValue>>();
    for value in values {
        let value = match value {
            Ok(value) => value,
            // A log whose lines begin with JSON.
            Err(_) if contents == Contents::Other => return Ok(contents),
            Err(error) => return Err(error.to_string()),
        };
        let bytes = value.get().as_bytes();
        if is_json_list(bytes) {
            contents = Contents::Objects;
            visit_list(bytes, visit)?;
            continue;
        }
        match json_object(bytes.to_vec()) {
            Some(object) => {
                contents = Contents::Objects;
                if visit(object).is_break() {
                    break;
                }
            }
            None if contents == Contents::Other => return Ok(contents),
            None => {}
        }
    }
    Ok(contents)
}

/// Reads the objects in a JSON array, as a support bundle has them.
fn visit_array(reader: impl Read, visit: &mut Visit<'_>) -> Result<Contents, String> {
    let mut elements = Elements { visit, contents: Contents::Other, untyped: 0, has_ended: false };
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(reader));
    let read = deserializer.deserialize_seq(&mut elements);
    let Elements { contents, untyped, has_ended, .. } = elements;
    match read {
        _ if has_ended => Ok(contents),
        Ok(()) if untyped > 0 => Err(format!("an array has {untyped} objects without apiVersion and kind")),
        Ok(()) => Ok(contents),
        // A log whose lines begin with a bracket.
        Err(_) if contents == Contents::Other => Ok(contents),
        Err(error) => Err(error.to_string()),
    }
}

/// The elements of an array, which are read one by one.
struct Elements<'v, 'a> {
    visit: &'v mut Visit<'a>,
    contents: Contents,
    /// The elements that have metadata, but not their kind.
    untyped: u64,
    has_ended: bool,
}

impl<'de> Visitor<'de> for &mut Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<Box<RawValue>>()? {
            let bytes = element.get().as_bytes();
            if let Some(object) = json_object(bytes.to_vec()) {
                self.contents = Contents::Objects;
                if (self.visit)(object).is_break() {
                    self.has_ended = true;
                    return Ok(());
                }
            } else if ItemRef::new(Encoding::Json, bytes).meta().is_ok_and(|meta| !meta.uid().is_empty()) {
                self.untyped += 1;
            }
        }
        Ok(())
    }
}

/// Returns an object of Kubernetes; nothing for other JSON.
fn json_object(bytes: Vec<u8>) -> Option<Object> {
    let type_meta = ItemRef::new(Encoding::Json, &bytes).own_type_meta().ok()??;
    let is_object = !type_meta.kind.is_empty() && !type_meta.api_version.is_empty();
    is_object.then_some(Object { encoding: Encoding::Json, type_meta, bytes })
}

/// Reads documents, and the items of those that are lists.
///
/// A list is recognized by a line `items:`; its items begin with `-` in one column. Nothing inside of an item has this
/// column, because block texts and flow values are indented further.
fn visit_yaml(reader: impl BufRead, visit: &mut Visit<'_>) -> Result<(), String> {
    let mut part = YamlPart::default();
    let mut line = Vec::new();
    let (mut number, mut reader) = (0_u64, reader);
    loop {
        line.clear();
        let read =
            (&mut reader).take(MAX_YAML as u64).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        number += 1;
        let text = std::str::from_utf8(&line).map_err(|_| format!("line {number} is not UTF-8"))?;
        let at_line = |error: String| format!("the YAML before line {number}: {error}");
        if read == 0 {
            return part.end(visit).map(drop).map_err(at_line);
        }
        let flow = part.add_line(text, visit).map_err(at_line)?;
        if flow.is_break() {
            return Ok(());
        }
    }
}

/// The document or the item that is being read.
#[derive(Default)]
struct YamlPart {
    text: String,
    items: Items,
}

#[derive(Default, PartialEq, Eq)]
enum Items {
    /// The document has shown no items.
    #[default]
    None,
    /// `items:` has been read, and the column of the items is not known.
    Begun,
    /// Items begin in this column.
    In(usize),
    /// The items have ended. The rest of the document is about the list.
    Ended,
}

impl YamlPart {
    fn add_line(&mut self, line: &str, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, String> {
        if line.trim_end() == "---" || line.starts_with("--- ") || line.trim_end() == "..." {
            let flow = self.end(visit)?;
            self.items = Items::None;
            return Ok(flow);
        }
        let column = line.len() - line.trim_start_matches(' ').len();
        let content = line.trim();
        let is_item = content == "-" || content.starts_with("- ");
        match self.items {
            // A document that is a sequence.
            Items::None if is_item && column == 0 && self.text.trim().is_empty() => {
                self.items = Items::In(0);
                self.push_item_line(line, 0);
            }
            Items::None if content == "items:" && column == 0 => {
                self.text.clear();
                self.items = Items::Begun;
            }
            Items::Begun if is_item => {
                self.items = Items::In(column);
                self.push_item_line(line, column);
            }
            Items::In(items) if is_item && column == items => {
                let flow = self.end(visit)?;
                self.push_item_line(line, column);
                return Ok(flow);
            }
            Items::In(items) if column <= items && !content.is_empty() && !content.starts_with('#') => {
                let flow = self.end(visit)?;
                self.items = Items::Ended;
                return Ok(flow);
            }
            Items::In(_) | Items::None => self.text.push_str(line),
            Items::Begun if content.is_empty() || content.starts_with('#') => {}
            Items::Begun => self.items = Items::Ended,
            Items::Ended => {}
        }
        if self.text.len() > MAX_YAML {
            return Err(format!("an object is larger than {MAX_YAML} bytes"));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Adds the first line of an item, with a space in place of its dash.
    fn push_item_line(&mut self, line: &str, column: usize) {
        self.text.extend(std::iter::repeat_n(' ', column + 1));
        self.text.push_str(line.get(column + 1..).unwrap_or_default());
    }

    /// Ends the document or the item.
    fn end(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, String> {
        let text = std::mem::take(&mut self.text);
        let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_empty || matches!(self.items, Items::Begun | Items::Ended) {
            return Ok(ControlFlow::Continue(()));
        }
        let json = yaml_to_json(&text)?;
        // A list that is written in braces.
        if is_json_list(&json) {
            return visit_list(&*json, visit).map(|()| ControlFlow::Continue(()));
        }
        Ok(json_object(json).map_or(ControlFlow::Continue(()), visit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        let peeked = Peeked::open(bytes).map_err(|error| error.to_string())?;
        let contents = peeked.visit_objects(&mut |object: Object| {
            let item = object.item();
            let meta = item.meta().unwrap();
            names.push(format!("{} {}/{}", object.type_meta.kind, meta.namespace(), meta.name()));
            ControlFlow::Continue(())
        })?;
        assert!(contents == Contents::Objects || names.is_empty());
        Ok(names)
    }

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"web"}}"#;

    #[test]
    fn reads_what_kubectl_and_servers_write() {
        let list = format!(r#"{{"apiVersion":"v1","items":[{POD},{POD}],"kind":"List","metadata":{{}}}}"#);
        let server = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a","namespace":"web"}}]}"#;
        let yaml_list = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    namespace: web\n\
            - apiVersion: v1\n  data:\n    text: |\n      - not an item\n      items:\n\n      ---\n  kind: ConfigMap\n  metadata:\n    name: b\n    namespace: web\n\
            kind: List\nmetadata: {}\n";
        let indented = yaml_list.replace("\n- ", "\n  - ").replace("\n  ", "\n    ").replace("\n    - ", "\n  - ");
        let documents = "# comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: web}\n---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: web}\n";
        let both = ["Pod web/a", "ConfigMap web/b"];
        for (text, expected) in [
            (POD.to_owned(), &both[..1]),
            (format!("{POD}\n{POD}\n"), &["Pod web/a", "Pod web/a"]),
            (list.clone(), &["Pod web/a", "Pod web/a"]),
            (
                serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&list).unwrap()).unwrap(),
                &["Pod web/a", "Pod web/a"],
            ),
            (server.to_owned(), &both[..1]),
            (format!("{POD}{server}"), &["Pod web/a", "Pod web/a"]),
            (yaml_list.to_owned(), &both),
            (format!("[\n {POD},\n {POD}]\n"), &["Pod web/a", "Pod web/a"]),
            (format!("[{{\"name\": \"no object\"}}, {POD}]"), &both[..1]),
            (
                "---\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    namespace: web\n- kind: ConfigMap\n  \
                 apiVersion: v1\n  metadata: {name: b, namespace: web}\n"
                    .to_owned(),
                &both,
            ),
            (indented, &both),
            (documents.to_owned(), &both),
            ("apiVersion: v1\nitems: []\nkind: List\n".to_owned(), &[]),
            // Other files of a dump.
            ("I1127 started\nkind: of\n".replace("kind", "a kind"), &[]),
            (r#"{"level":"info","msg":"x"}"#.to_owned() + "\nnext", &[]),
            ("[INFO] started\n".to_owned(), &[]),
            (r#"[{"level":"info"}, 1]"#.to_owned(), &[]),
            (String::new(), &[]),
        ] {
            assert_eq!(
                names(text.as_bytes()).as_deref(),
                Ok(&*expected.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()),
                "{text}"
            );
        }
    }

    #[test]
    fn decompresses_and_names_faults() {
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(POD.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(names(&gzip).unwrap(), ["Pod web/a"]);
        let zstd = zstd::encode_all(POD.as_bytes(), 1).unwrap();
        assert_eq!(names(&zstd).unwrap(), ["Pod web/a"]);
        assert!(names(&gzip[..gzip.len() / 2]).is_err());
        for (text, error) in [
            (format!(r#"{{"apiVersion":"v1","items":[{POD},"#), "end"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: [\n".to_owned(), "the YAML before line 4"),
            (format!("{POD}\n{{"), "EOF"),
            (format!("[{POD},"), "EOF"),
            (
                r#"[{"metadata":{"name":"a","uid":"1"}}]"#.to_owned(),
                "an array has 1 objects without apiVersion and kind",
            ),
        ] {
            let found = names(text.as_bytes()).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
