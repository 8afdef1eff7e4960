//! Any text is a path or template, or an error on one line. What it finds in the parts of an object that it needs, it
//! finds in the whole object; what it prints of a list that arrives item by item, it prints of the whole list.

use listwatch::{Encoding, FieldPath, ItemRef, TypeMeta};
use listwatch_tables::json_path::{JsonPath, JsonPathTemplate, ObjectReader};
use serde_json::{Value, json};

/// Takes a line with a template, and an object in JSON in the remaining bytes.
pub fn run(data: &[u8]) {
    let (text, object) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(text) = str::from_utf8(text) else { return };
    let whole = serde_json::from_slice::<Value>(object).ok().filter(Value::is_object);
    for kind in ["Pod", "Widget"] {
        let type_meta = TypeMeta::new("v1", kind);
        if let Ok(path) = FieldPath::parse(text, &type_meta) {
            let item = ItemRef::new(Encoding::Json, object.trim_ascii()).with_type_meta(&type_meta);
            _ = (path.str(item), path.bytes(item), path.int(item), path.strs(item).count());
        }
    }
    if let Err(error) = JsonPath::parse(text) {
        assert!(error.position().is_none_or(|at| at <= text.len()), "{error}");
    }
    let template = match JsonPathTemplate::parse(text) {
        Ok(template) => template,
        Err(error) => return assert!(error.position().is_some_and(|at| at <= text.len()), "{error}"),
    };
    let Some(whole) = whole else { return };
    let write = |value: &Value| {
        let mut out = Vec::new();
        template.write(value, &mut out).map(|()| out)
    };
    let type_meta = TypeMeta::new("example.com/v1", "Widget");
    let item = ItemRef::new(Encoding::Json, object.trim_ascii()).with_type_meta(&type_meta);
    if let (Ok((part, _)), Some(all)) = (ObjectReader::of_template(&template).read(&item), to_json(&item)) {
        assert_eq!(write(&part), write(&all), "{part} of {all}");
    }
    let items = [whole.clone(), json!({}), whole];
    let Ok(list) = template.clone().for_list(false) else { return };
    let mut run = list.begin();
    let mut parts = vec![Vec::new(); run.parts()];
    let mut sink = |part: usize, bytes: &[u8]| parts[part].extend_from_slice(bytes);
    let ended = run.start(&mut sink).and_then(|_| {
        items.iter().try_for_each(|item| run.add_item(item, &mut sink))?;
        run.end(&mut sink)
    });
    let of_list =
        write(&json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}));
    if let (Ok(()), Ok(expected)) = (ended, of_list) {
        assert_eq!(String::from_utf8_lossy(&parts.concat()), String::from_utf8_lossy(&expected));
    }
}

fn to_json(item: &ItemRef<'_>) -> Option<Value> {
    let mut json = Vec::new();
    item.to_json(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}
