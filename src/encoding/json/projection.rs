//! The copy of a JSON object.

use crate::encoding::json::reader::Reader;
use crate::encoding::paths::{Action, Rules};
use crate::error::Fault;

type ByName<'p> = Rules<'p, Box<str>>;

pub(crate) fn append(mut json: Reader<'_>, rules: ByName<'_>, copy: &mut Vec<u8>) -> Result<(), Fault> {
    write(&mut json, rules, true, copy)?;
    json.end()
}

/// Writes a projected value. It recurs at most once for each name of a path, and once more for an array at that name.
fn write(json: &mut Reader<'_>, rules: ByName<'_>, is_whole: bool, copy: &mut Vec<u8>) -> Result<(), Fault> {
    match json.peek() {
        Some(b'{') => write_object(json, rules, is_whole, copy),
        Some(b'[') => {
            copy.push(b'[');
            let mut elements = json.array()?;
            while elements.next(json)? {
                separate(b'[', copy);
                match json.peek() {
                    Some(b'{') => write_object(json, rules, false, copy)?,
                    _ => copy.extend_from_slice(json.value()?),
                }
            }
            copy.push(b']');
            Ok(())
        }
        _ => {
            copy.extend_from_slice(json.value()?);
            Ok(())
        }
    }
}

fn write_object(json: &mut Reader<'_>, rules: ByName<'_>, is_whole: bool, copy: &mut Vec<u8>) -> Result<(), Fault> {
    copy.push(b'{');
    let mut members = json.object()?;
    while let Some(name) = members.next(json)? {
        let rules = match &*name {
            // `keep` does not apply to these two, because in protobuf they are outside of the object.
            "apiVersion" | "kind" if is_whole => Rules { keep: None, ..rules },
            _ => rules,
        };
        let action = rules.action(&*name);
        if let Action::Drop = action {
            json.value()?;
            continue;
        }
        separate(b'{', copy);
        serde_json::to_writer(&mut *copy, &name).map_err(|_| Fault::Syntax)?;
        copy.push(b':');
        match action {
            Action::Project(rules) => write(json, rules, false, copy)?,
            _ => copy.extend_from_slice(json.value()?),
        }
    }
    copy.push(b'}');
    Ok(())
}

fn separate(bracket: u8, copy: &mut Vec<u8>) {
    if copy.last() != Some(&bracket) {
        copy.push(b',');
    }
}
