//! The body of a watch in JSON: objects, between which white space is allowed.
//!
//! One scan finds the end of a frame and the ends of the values in it. Readers and projections of the frame use these
//! ends instead of scanning again.
//!
//! ```text
//! Opening ──> Object <──> Between
//! ```

use std::borrow::Cow;

use super::reader::Reader;
use super::scan::{Ends, Scan};
use crate::encoding::body_state::BodyState;
use crate::encoding::codec::WatchBody;
use crate::encoding::frame::{FoundFrame, Frame, FrameType, malformed};
use crate::encoding::item_ref::End;
use crate::error::{DecodeErrorKind, Limit};
use crate::meta::INITIAL_EVENTS_END;
use crate::wire::{BodyFormat, Fault, FieldFault, at};

pub(crate) struct JsonWatch {
    state: JsonWatchState,
    /// The ends of values in the current frame.
    ends: Ends,
}

enum JsonWatchState {
    /// In the first object, before its first name is known. `scratch` holds the bytes so far, without the spaces before
    /// the name.
    Opening,
    /// Before the object of a frame.
    Between,
    /// In the object of a frame.
    Object(Scan),
}

impl JsonWatch {
    pub(crate) fn new() -> Self {
        Self { state: JsonWatchState::Opening, ends: Ends::default() }
    }

    /// Decides whether the first object is an event.
    fn open(&mut self, watch: &mut BodyState, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let mut decided = if watch.scratch.is_empty() { is_event(input) } else { None };
        while decided.is_none() && !input.is_empty() {
            let byte = watch.take(1, input);
            if watch.scratch != b"{" || !is_space(byte) {
                watch.scratch.extend_from_slice(byte);
            }
            decided = is_event(&watch.scratch);
        }
        match decided {
            None => Ok(()),
            Some(false) => Err(DecodeErrorKind::UnexpectedEncoding(BodyFormat::Document)),
            Some(true) => {
                let mut scan = Scan::new(b'{', 0);
                // The event does not end within these bytes.
                scan.end_with(&watch.scratch, &mut self.ends).map_err(|fault| malformed(("the frame", fault)))?;
                self.state = JsonWatchState::Object(scan);
                Ok(())
            }
        }
    }

    fn between(&mut self, watch: &mut BodyState, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let spaces = input.chunks(1).take_while(|byte| is_space(byte)).count();
        watch.take(spaces as u64, input);
        match input.first() {
            None => Ok(()),
            Some(b'{') => {
                watch.begin_frame();
                self.ends.clear();
                self.state = JsonWatchState::Object(Scan::new(b'{', 0));
                Ok(())
            }
            Some(_) => {
                watch.begin_frame();
                Err(malformed(("the frame", Fault::Syntax)))
            }
        }
    }
}

impl WatchBody for JsonWatch {
    fn step<'i>(
        &mut self,
        watch: &mut BodyState,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        let scan = match &mut self.state {
            JsonWatchState::Opening => return self.open(watch, input).map(|()| None),
            JsonWatchState::Between => return self.between(watch, input).map(|()| None),
            JsonWatchState::Object(scan) => scan,
        };
        let max = watch.limits.item_size;
        let left = max.saturating_sub(watch.position - watch.field_start);
        let window = usize::try_from(left).ok().and_then(|left| input.get(..=left)).unwrap_or(input);
        let end = scan.end_with(window, &mut self.ends).map_err(|fault| malformed(("the frame", fault)))?;
        let piece = watch.take(end.unwrap_or(window.len()) as u64, input);
        if watch.position - watch.field_start > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::ItemSize, size: max + 1, max });
        }
        if end.is_none() {
            watch.keep(piece, left - piece.len() as u64);
            return Ok(None);
        }
        self.state = JsonWatchState::Between;
        Ok(Some(watch.end_frame(piece)))
    }

    fn is_between_frames(&self) -> bool {
        matches!(self.state, JsonWatchState::Between)
    }

    fn read<'f>(&'f self, bytes: &'f [u8], frame: &mut Frame<'f>) -> Result<(), FieldFault> {
        *frame = read(bytes, self.ends.found())?;
        Ok(())
    }
}

fn is_space(byte: &[u8]) -> bool {
    matches!(byte, b" " | b"\t" | b"\n" | b"\r")
}

/// Returns whether a body is a watch, judged by the name of its first member, or `None` while this name is incomplete.
///
/// Lists, single objects and Statuses begin with other names.
fn is_event(beginning: &[u8]) -> Option<bool> {
    let Some(name) = beginning.strip_prefix(b"{") else { return Some(false) };
    let name = name.trim_ascii_start();
    let names = [&br#""type""#[..], br#""object""#];
    if names.iter().any(|known| name.starts_with(known)) {
        return Some(true);
    }
    if names.iter().any(|known| known.starts_with(name)) { None } else { Some(false) }
}

/// Reads an event, which is one JSON object. `ends` contains the ends that a scan of the object has found, or nothing.
///
/// With the ends, values are not scanned again, and splitting a watch of recorded Pods into events, reading them and
/// dropping `managedFields` takes less than half of the time. A test compares the two ways.
fn read<'a>(event: &'a [u8], ends: &'a [End]) -> Result<Frame<'a>, FieldFault> {
    let (mut frame, mut annotations) = (Frame::default(), &b""[..]);
    let mut json = Reader::with_ends(event, ends);
    let mut members = json.object().map_err(at("the frame"))?;
    while let Some(name) = members.next(&mut json).map_err(at("the frame"))? {
        match &*name {
            "type" => {
                if let Some(event) = json.text().map_err(at("type"))? {
                    frame.event = Some(FrameType::of(event.as_bytes()));
                }
            }
            "object" => {
                let first = json.peek();
                let from = json.rest();
                annotations = b"";
                if first == Some(b'n') {
                    frame = Frame { event: frame.event, ..Frame::default() };
                    json.value().map_err(at("object"))?;
                    continue;
                }
                frame = Frame { event: frame.event, ..object(&mut json, &mut annotations)? };
                frame.object = from.get(..from.len() - json.rest().len());
                let end = event.len() - json.rest().len();
                let own = ends.binary_search_by_key(&end, |known| known.at as usize);
                frame.ends = own.ok().and_then(|own| ends.get(..=own)).unwrap_or_default();
            }
            _ => _ = json.value().map_err(at("the frame"))?,
        }
    }
    json.end().map_err(at("the frame"))?;
    if frame.event == Some(FrameType::Bookmark) && !annotations.is_empty() {
        frame.ends_initial_events = ends_initial_events(annotations).map_err(at("metadata.annotations"))?;
    }
    Ok(frame)
}

fn object<'a>(json: &mut Reader<'a>, annotations: &mut &'a [u8]) -> Result<Frame<'a>, FieldFault> {
    let mut frame = Frame::default();
    let mut members = json.object().map_err(at("object"))?;
    while let Some(name) = members.next(json).map_err(at("object"))? {
        match &*name {
            "apiVersion" => set(&mut frame.api_version, json, "apiVersion")?,
            "kind" => set(&mut frame.kind, json, "kind")?,
            "metadata" if json.peek() == Some(b'{') => {
                let mut members = json.object().map_err(at("metadata"))?;
                while let Some(name) = members.next(json).map_err(at("metadata"))? {
                    match &*name {
                        "resourceVersion" => set(&mut frame.resource_version, json, "metadata.resourceVersion")?,
                        "annotations" if json.peek() == Some(b'{') => {
                            *annotations = json.value().map_err(at("metadata"))?;
                        }
                        _ => _ = json.value().map_err(at("metadata"))?,
                    }
                }
            }
            _ => _ = json.value().map_err(at("object"))?,
        }
    }
    Ok(frame)
}

fn set<'a>(place: &mut Cow<'a, str>, json: &mut Reader<'a>, field: &'static str) -> Result<(), FieldFault> {
    if let Some(text) = json.exact_text().map_err(at(field))? {
        *place = text;
    }
    Ok(())
}

fn ends_initial_events(annotations: &[u8]) -> Result<bool, Fault> {
    let mut json = Reader::new(annotations, 3);
    let mut ends = false;
    let mut members = json.object()?;
    while let Some(name) = members.next(&mut json)? {
        if name == INITIAL_EVENTS_END {
            ends = json.text()?.as_deref() == Some("true");
        } else {
            json.value()?;
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::item_ref::ItemRef;
    use crate::encoding::json::scan::Scan;
    use crate::object::{FieldPath, Projection};
    use crate::wire::Encoding;

    /// Returns the event at the beginning of these bytes, and the ends that the scan for its end finds.
    fn scan(bytes: &[u8], chunk: usize) -> Option<(&[u8], Ends)> {
        let (mut scan, mut ends) = (Scan::new(b'{', 0), Ends::default());
        for (index, piece) in bytes.chunks(chunk).enumerate() {
            if let Some(end) = scan.end_with(piece, &mut ends).ok()? {
                return Some((&bytes[..index * chunk + end], ends));
            }
        }
        None
    }

    /// Event, object, texts of the type meta and version, end of the initial events.
    type Event = (Option<FrameType>, Option<Vec<u8>>, [String; 3], bool);

    /// What is read of an object: its projection, its metadata, and the values of a path.
    type Object = [Result<Vec<u8>, String>; 3];

    /// Returns all that is read of an event and of its object.
    fn read_all(event: &[u8], ends: &[End], projection: &Projection) -> Result<(Event, Object), FieldFault> {
        let frame = read(event, ends)?;
        let object = frame.object.map(<[u8]>::to_vec);
        let item = ItemRef { ends: frame.ends, ..ItemRef::new(Encoding::Json, frame.object.unwrap_or_default()) };
        let texts = [frame.api_version, frame.kind, frame.resource_version].map(Cow::into_owned);
        Ok(((frame.event, object, texts, frame.ends_initial_events), read_object(item, projection)))
    }

    fn read_object(item: ItemRef<'_>, projection: &Projection) -> Object {
        let metadata = item.meta().and_then(|meta| Ok(format!("{meta:?} {:?}", meta.labels()?.collect::<Vec<_>>())));
        let values = FieldPath::new("metadata.labels.a", &[]).all_bytes(item).collect::<Result<Vec<_>, _>>();
        let read = [
            item.project(projection).map(Vec::from),
            metadata.map(String::into_bytes),
            values.map(|values| values.join(&b' ')),
        ];
        read.map(|read| read.map_err(|error| error.to_string()))
    }

    fn value() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![r#""[a{}\[\], ]{0,9}""#, r#""(\\\\|\\"|[}\]a]){0,5}""#, "-?[1-9]{1,3}|null|true"];
        scalar.prop_recursive(4, 16, 4, |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(","))),
                prop::collection::vec(("[a-c]", value), 0..4).prop_map(|members| object(&members)),
            ]
        })
    }

    fn object(members: &[(String, String)]) -> String {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    }

    /// Generates members with these names, some of them twice, in any order.
    fn members(
        names: &'static [&'static str],
        value: impl Strategy<Value = String>,
    ) -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec((prop::sample::select(names).prop_map(str::to_owned), value), 0..7)
    }

    fn event() -> impl Strategy<Value = Vec<u8>> {
        let annotations = Just(format!(r#"{{"{INITIAL_EVENTS_END}":"true"}}"#));
        let metadata = members(
            &["resourceVersion", "labels", "managedFields", "annotations"],
            prop_oneof![3 => value(), 1 => Just(r#""7""#.to_owned()), 1 => annotations],
        );
        let metadata = metadata.prop_map(|members| object(&members));
        let pod = members(
            &["kind", "apiVersion", "spec", "metadata", "metadata"],
            prop_oneof![2 => value(), 3 => metadata, 1 => Just(r#""v1""#.to_owned())],
        );
        let pod = pod.prop_map(|members| object(&members));
        let event = members(
            &["type", "object", "object", "more"],
            prop_oneof![1 => value(), 3 => pod, 2 => prop_oneof!["\"ADDED\"", "\"BOOKMARK\""]],
        );
        let edits =
            prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"{}[]\"\\,:1 "[..])), 0..3);
        (event, edits).prop_map(|(members, edits)| {
            let mut event = object(&members).into_bytes();
            for (at, byte) in edits {
                let at = at.index(event.len());
                event[at] = byte;
            }
            event.extend_from_slice(b"}}");
            event
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn known_ends_change_nothing(bytes in event(), chunk in 1..200_usize) {
            let drop = |projection: Projection, path: &str| {
                projection.drop(&FieldPath::parse(path, &crate::meta::TypeMeta::default()).unwrap())
            };
            let projection = drop(drop(Projection::new(), "metadata.managedFields"), "spec.a");
            if bytes.starts_with(b"{") && let Some((event, ends)) = scan(&bytes, chunk) {
                let expected = read_all(event, &[], &projection);
                prop_assert_eq!(&read_all(event, ends.found(), &projection), &expected);
            }
        }
    }

    /// A scan that finds too many ends keeps none.
    #[test]
    fn reads_events_with_few_and_with_many_values() {
        for (values, are_known) in [(10, true), (2000, false)] {
            let many = "[],".repeat(values);
            let event = format!(
                r#"{{"type":"ADDED","object":{{"a":[{many}[]],"metadata":{{"resourceVersion":"7","managedFields":[{many}[]]}},"b":{{}}}}}}"#
            );
            let (whole, ends) = scan(event.as_bytes(), 64).unwrap();
            assert_eq!((whole, !ends.found().is_empty()), (event.as_bytes(), are_known));
            let projection = Projection::new().drop(&crate::object::path::meta::MANAGED_FIELDS);
            let outcome = read_all(whole, ends.found(), &projection);
            assert_eq!(outcome, read_all(whole, &[], &projection));
            let projected = format!(r#"{{"a":[{many}[]],"metadata":{{"resourceVersion":"7"}},"b":{{}}}}"#);
            assert_eq!(outcome.unwrap().1[0], Ok(projected.into_bytes()));
        }
    }
}
