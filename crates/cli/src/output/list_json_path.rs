//! `-o jsonpath=` of `get`: kubectl's template of a List, whose items arrive one by one.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use listwatch::{ItemError, ItemRef, ListMeta};
use listwatch_tables::json_path::{JsonPathTemplate, ListRun, ListTemplate, ObjectReader};

use super::format::{Constructor, Format, FormatBuilder, FormatContext, FormatInfo, Needs, Row};
use super::json::{add, object_value};
use crate::spool::Spool;

pub const LIST_JSON_PATH: FormatInfo = FormatInfo {
    name: "jsonpath=",
    help: "kubectl's JSONPath of one object by its name, else of a List; jsonpath-file= reads it from a file",
    needs: Needs::Fields,
    constructor: Constructor::Argument(|template, _| builder(template, false)),
};

pub const LIST_JSON_PATH_AS_JSON: FormatInfo = FormatInfo {
    name: "jsonpath-as-json=",
    help: "The results of each action of a JSONPath template, as an array of JSON",
    needs: Needs::Fields,
    constructor: Constructor::Argument(|template, _| builder(template, true)),
};

fn builder(template: &str, is_json: bool) -> Result<FormatBuilder, String> {
    if template.is_empty() {
        return Err("the template is empty".to_owned());
    }
    let parsed = JsonPathTemplate::parse(template).map_err(|error| error.to_string())?;
    // A template of one object need not suit a List.
    let of_list = parsed.clone().for_list(is_json).map_err(|error| error.to_string());
    let of_object = parsed.for_object(is_json);
    Ok(Arc::new(move |context: &FormatContext| -> Rc<dyn Format> {
        let unknown_fields = Cell::default();
        if !context.is_list {
            return Rc::new(ObjectFormat { template: of_object.clone(), unknown_fields });
        }
        Rc::new(ListFormat { list: RefCell::new(of_list.clone().and_then(ListOutput::new)), unknown_fields })
    }))
}

/// Prints the template of one object.
struct ObjectFormat {
    template: ListTemplate,
    unknown_fields: Cell<u64>,
}

/// Prints the template of a List.
struct ListFormat {
    list: RefCell<Result<ListOutput, String>>,
    unknown_fields: Cell<u64>,
}

/// The template of a List in use. The first part that needs items is printed at once; later ones wait for its end.
struct ListOutput {
    /// Of what the template finds.
    reader: ObjectReader,
    run: ListRun,
    live: usize,
    waiting: Vec<Spool>,
    is_begun: bool,
}

impl ListOutput {
    fn new(template: ListTemplate) -> Result<Self, String> {
        let reader = ObjectReader::of_list(&template);
        let mut run = template.begin();
        let mut waiting: Vec<_> = (0..run.parts()).map(|_| Spool::default()).collect();
        let mut result = Ok(());
        let live = run.start(&mut |part, text| spool(&mut waiting, part, text, &mut result));
        result.map_err(|error| error.to_string())?;
        Ok(Self { reader, live: live.map_err(|error| error.to_string())?, run, waiting, is_begun: false })
    }

    /// Returns what the first part that needs items prints of an item, after all that stands before it.
    fn add_item(&mut self, item: &serde_json::Value) -> Result<Vec<u8>, ItemError> {
        let mut text = Vec::new();
        self.begin(&mut text).map_err(ItemError::other)?;
        let (live, mut result) = (self.live, Ok(()));
        let waiting = &mut self.waiting;
        let added = self.run.add_item(item, &mut |part, bytes| match part {
            part if part == live => text.extend_from_slice(bytes),
            part => spool(waiting, part, bytes, &mut result),
        });
        added.map_err(ItemError::other)?;
        result.map_err(ItemError::other)?;
        Ok(text)
    }

    /// Writes what stands before the first part that needs items, once.
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        (0..self.live).try_for_each(|part| self.write_part(part, out))?;
        out.write_all(&self.run.surroundings(self.live).0)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.begin(out)?;
        let (live, mut result, mut text) = (self.live, Ok(()), Vec::new());
        let waiting = &mut self.waiting;
        let ended = self.run.end(&mut |part, bytes| match part {
            part if part == live => text.extend_from_slice(bytes),
            part => spool(waiting, part, bytes, &mut result),
        });
        ended.map_err(io::Error::other)?;
        result?;
        out.write_all(&text)?;
        out.write_all(&self.run.surroundings(live).1)?;
        (live + 1..self.run.parts()).try_for_each(|part| self.write_part(part, out))
    }

    fn write_part(&mut self, part: usize, out: &mut dyn Write) -> io::Result<()> {
        let (before, after) = self.run.surroundings(part);
        out.write_all(&before)?;
        if let Some(spool) = self.waiting.get_mut(part) {
            io::copy(&mut std::mem::take(spool).into_reader()?, out)?;
        }
        out.write_all(&after)
    }
}

fn spool(waiting: &mut [Spool], part: usize, text: &[u8], result: &mut io::Result<()>) {
    if let (Some(spool), Ok(())) = (waiting.get_mut(part), &result) {
        *result = spool.write(text);
    }
}

impl Format for ObjectFormat {
    fn info(&self) -> &'static FormatInfo {
        &LIST_JSON_PATH
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (object, unknown_fields) = object_value(item)?;
        add(&self.unknown_fields, unknown_fields);
        let mut text = Vec::new();
        self.template.write_object(&object, &mut text).map_err(ItemError::other)?;
        Ok(Some(text))
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}

impl Format for ListFormat {
    fn info(&self) -> &'static FormatInfo {
        &LIST_JSON_PATH
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let mut list = self.list.borrow_mut();
        let list = list.as_mut().map_err(|error| ItemError::other(error.clone()))?;
        let (object, unknown_fields) = list.reader.read(item)?;
        add(&self.unknown_fields, unknown_fields);
        Ok(Some(list.add_item(&object)?))
    }

    fn write_end(&self, out: &mut dyn Write, _: Option<&ListMeta>) -> io::Result<()> {
        match &mut *self.list.borrow_mut() {
            Ok(list) => list.end(out),
            Err(error) => Err(io::Error::other(error.clone())),
        }
    }

    /// A template that needs the whole List is known to be wrong before the first item.
    fn usage_error(&self) -> Option<String> {
        self.list.borrow().as_ref().err().cloned()
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}
