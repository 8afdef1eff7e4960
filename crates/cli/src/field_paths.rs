//! Paths of fields in options, and what to write in place of an unknown one.

use listwatch::schema::Message;
use listwatch::{FieldPath, TypeMeta};

/// Parses a path in `--drop`, with or without a dot before it, for objects of this type.
pub fn parse_drop_path(path: &str, of: &TypeMeta) -> Result<FieldPath, String> {
    // Paths of kubectl begin with a dot.
    parse_path(path.trim_start_matches('.'), of).map_err(|reason| format!("--drop: {reason}"))
}

/// Parses a path for objects of this type. The error has a hint.
pub fn parse_path(path: &str, of: &TypeMeta) -> Result<FieldPath, String> {
    FieldPath::parse(path, of).map_err(|error| {
        let (names, key) = path.split_once('[').map_or((path, None), |(names, key)| (names, key.chars().next()));
        let hint = match key {
            None | Some('"') => suggest_path(names, of).unwrap_or_default(),
            Some('0'..='9' | '*') => "; a path without an index selects the field in all elements of a list".to_owned(),
            Some(_) => "; put the path into single quotes for the shell".to_owned(),
        };
        format!("{error}{hint}")
    })
}

/// Returns a hint at the intended path: a key for names in a map, or the nearest name for an unknown name.
fn suggest_path(path: &str, of: &TypeMeta) -> Option<String> {
    let known = Message::of(&of.api_version, of.item_kind());
    let mut message = known.or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata"))?;
    let mut at = 0;
    loop {
        let (before, rest) = path.split_at(at);
        let (name, after) = rest.split_once('.').unwrap_or((rest, ""));
        match message.path(name).and_then(|mut path| path.pop()) {
            Some(_) if after.is_empty() => return None,
            Some(map) if map.is_map() => {
                // kubectl escapes the dots of a key.
                let key = after.replace("\\.", ".");
                return Some(format!("; write '{before}{name}[\"{key}\"]', with the quotes for the shell"));
            }
            Some(field) => message = field.message()?,
            None => {
                let nearest = nearest_name(name, message)?;
                return Some(format!("; did you mean {before}{nearest}{}?", &rest[name.len()..]));
            }
        }
        at += name.len() + 1;
    }
}

/// Returns the most similar name of a field.
fn nearest_name(name: &str, message: &'static Message) -> Option<&'static str> {
    let mut names = Vec::new();
    add_names(message, &mut names);
    let near = names.into_iter().map(|known| (strsim::jaro(&known.to_lowercase(), &name.to_lowercase()), known));
    near.filter(|(similarity, _)| *similarity > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// Adds the names of the fields, with the fields of messages that JSON inlines.
fn add_names(message: &'static Message, names: &mut Vec<&'static str>) {
    // The numbers of Kubernetes are consecutive, up to 50 or so.
    for field in (1..1000).filter_map(|number| message.field(number)) {
        match (field.name(), field.message()) {
            ("", Some(inlined)) => add_names(inlined, names),
            (name, _) => names.push(name),
        }
    }
}
