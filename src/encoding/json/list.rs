//! The state machine that walks the JSON body of a list.
//!
//! For maintainers: only `step` consumes bytes from the front of the input. It must be correct when the input ends
//! after any byte, and find the same fault at the same byte however the input is split, so a limit shortens the input
//! before it is scanned. It walks only the body's own members; [`Scan`] finds the ends of items and other values.
//!
//! ```text
//! Start ──> Key ──> Name ──> Colon ──> Value ──┬──> Collect ──┐
//!            ^                                 ├──> Skip ─────┤
//!            │        ┌──> Item, Oversized ──┐ │              │
//!            │        │                      v │              │
//!            │     Element <── ElementEnd <────┴── [          │
//!            │        └────────────────────────> MemberEnd <──┘
//!            └──────────────────────────────────────┴──> End
//! ```

use super::messages;
use crate::encoding::body_state::{BodyState, FoundEvent};
use crate::encoding::codec::ListBody;
use crate::encoding::json::reader::{begins_value, text};
use crate::encoding::json::scan::Scan;
use crate::error::{DecodeError, DecodeErrorKind, Fault, Limit};
use crate::meta::TypeMeta;
use crate::wire::BodyFormat;

/// The length of the longest known name, `apiVersion`, with quotes and written in escapes. Longer names are unknown.
const LONGEST_NAME: usize = 62;

/// The beginning of the Status that an API server writes after an item if it cannot encode the next one.
const STATUS: &[u8] = br#"{"kind":"Status","apiVersion":"v1""#;

pub(crate) struct JsonList {
    /// `field_start` is the offset of the current member or item.
    pub(crate) list: BodyState,
    state: JsonListState,
    /// The scan of the current value, in the states that search for its end.
    scan: Scan,
    /// The body so far, as long as it may be a Status: until a member `kind` names another kind, or `items` begins.
    head: Option<Vec<u8>>,
    has_items: bool,
}

#[derive(Clone, Copy)]
enum JsonListState {
    Start,
    /// Before a name, or before the closing brace if the object `may_end`.
    Key {
        may_end: bool,
    },
    /// In a name.
    Name,
    Colon(Key),
    Value(Key),
    /// In a value that is kept.
    Collect(Key),
    /// In a value that is skipped.
    Skip(Key),
    /// In `null`, which sets nothing, as in Go.
    Null(Key),
    MemberEnd,
    /// Before an item, or before the closing bracket if the array `may_end`.
    Element {
        may_end: bool,
    },
    Item {
        len: u64,
    },
    /// In an item over the size limit, which is skipped.
    Oversized,
    ElementEnd,
    End,
}

/// A member of the body, or an element of `items`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    ApiVersion,
    Kind,
    ListMeta,
    Items,
    Item,
    /// A member of a watch event.
    Object,
    Other,
}

impl JsonList {
    pub(crate) fn new(list: BodyState) -> Self {
        Self { list, state: JsonListState::Start, scan: Scan::new(b'{', 0), head: Some(Vec::new()), has_items: false }
    }

    /// Advances by one state. `input` is not empty.
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        match self.state {
            JsonListState::Name => return self.name(input),
            JsonListState::Collect(key) => return self.collect(key, input),
            JsonListState::Skip(key) => {
                if self.skip(key, input)? {
                    self.state = JsonListState::MemberEnd;
                }
                return Ok(None);
            }
            JsonListState::Null(key) => return self.null(key, input),
            JsonListState::Item { len } => return self.item(len, input),
            JsonListState::Oversized => {
                return Ok(if self.skip(Key::Item, input)? { Some(self.end_oversized()) } else { None });
            }
            _ => {}
        }
        let spaces = input.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.list.take(spaces as u64, input);
        let Some(&byte) = input.first() else { return Ok(None) };
        match (self.state, byte) {
            (JsonListState::Value(key), _) => return self.value(key, byte, input),
            (JsonListState::Element { .. }, b'{' | b'n') => return self.begin_item(byte, input),
            (JsonListState::Element { .. }, b'"' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f') => {
                self.list.field_start = self.list.position;
                return Err(self.malformed(Key::Item, Fault::Type));
            }
            (JsonListState::Key { .. }, b'"') => {
                self.list.field_start = self.list.position;
                self.list.scratch.clear();
                self.scan = Scan::new(byte, 1);
                self.state = JsonListState::Name;
                return Ok(None);
            }
            (JsonListState::Start, b'{') => self.state = JsonListState::Key { may_end: true },
            (JsonListState::Start, b'[') => return Err(self.in_body(Fault::Type)),
            (JsonListState::Colon(key), b':') => self.state = JsonListState::Value(key),
            (JsonListState::MemberEnd, b',') => self.state = JsonListState::Key { may_end: false },
            (JsonListState::Key { may_end: true } | JsonListState::MemberEnd, b'}') => {
                self.list.field_start = self.list.position;
                self.close()?;
                self.state = JsonListState::End;
            }
            (JsonListState::ElementEnd, b',') => self.state = JsonListState::Element { may_end: false },
            (JsonListState::Element { may_end: true } | JsonListState::ElementEnd, b']') => {
                self.state = JsonListState::MemberEnd;
            }
            _ => return Err(self.in_body(Fault::Syntax)),
        }
        self.list.take(1, input);
        Ok(None)
    }

    fn name<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let end = self.scan.end(input).map_err(|fault| self.malformed(Key::Other, fault))?;
        let piece = self.list.take(end.unwrap_or(input.len()) as u64, input);
        let scratch = &mut self.list.scratch;
        // One byte more is kept, to detect a longer name.
        scratch.extend_from_slice(first(piece, (LONGEST_NAME + 1).saturating_sub(scratch.len()) as u64));
        if end.is_some() {
            let key = if scratch.len() > LONGEST_NAME { Key::Other } else { self.key()? };
            self.state = JsonListState::Colon(key);
        }
        Ok(None)
    }

    fn key(&self) -> Result<Key, DecodeError> {
        let name = text(&self.list.scratch).map_err(|fault| self.malformed(Key::Other, fault))?;
        Ok(match &*name {
            "apiVersion" => Key::ApiVersion,
            "kind" => Key::Kind,
            "metadata" => Key::ListMeta,
            "items" => Key::Items,
            "object" => Key::Object,
            _ => Key::Other,
        })
    }

    fn value<'i>(&mut self, key: Key, byte: u8, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        if key == Key::Items && self.list.index() > 0 {
            return Err(self.malformed(key, Fault::Twice));
        }
        self.list.scratch.clear();
        self.scan = Scan::new(byte, 1);
        self.state = match (key, byte) {
            (Key::ApiVersion | Key::Kind, b'"') | (Key::ListMeta, b'{') => JsonListState::Collect(key),
            (Key::Items, b'[') => {
                self.check_kind()?;
                self.head = None;
                self.has_items = true;
                self.list.take(1, input);
                JsonListState::Element { may_end: true }
            }
            (Key::Object, b'{') if self.list.type_meta.kind.is_empty() => {
                let kind = DecodeErrorKind::UnexpectedEncoding(BodyFormat::WatchStream);
                return Err(DecodeError::new(kind, 0, None, self.list.items));
            }
            (_, byte) if !begins_value(byte) => return Err(self.in_body(Fault::Syntax)),
            (Key::Object | Key::Other, _) => JsonListState::Skip(key),
            (_, b'n') => JsonListState::Null(key),
            _ => return Err(self.malformed(key, Fault::Type)),
        };
        Ok(None)
    }

    fn collect<'i>(&mut self, key: Key, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let max = self.list.limits.metadata_size;
        let so_far = self.list.scratch.len() as u64;
        let window = first(input, (max - so_far).saturating_add(1));
        let end = self.scan.end(window).map_err(|fault| self.malformed(key, fault))?;
        let piece = self.list.take(end.unwrap_or(window.len()) as u64, input);
        let len = so_far + piece.len() as u64;
        if len > max {
            return Err(self.over_at(self.list.field_start, Limit::MetadataSize, max));
        }
        self.list.keep(piece, max - len);
        if end.is_none() {
            return Ok(None);
        }
        self.state = JsonListState::MemberEnd;
        if key == Key::ListMeta {
            messages::merge_list_meta(&mut self.list.list_meta, &self.list.scratch)
                .map_err(|(field, fault)| self.list.error(DecodeErrorKind::Malformed { field, fault }))?;
            return Ok(Some(FoundEvent::ListMeta));
        }
        let text = text(&self.list.scratch).map_err(|fault| self.malformed(key, fault))?.into_owned();
        let TypeMeta { api_version, kind } = &mut self.list.type_meta;
        *(if key == Key::Kind { &mut *kind } else { &mut *api_version }) = text;
        if api_version.is_empty() || kind.is_empty() {
            return Ok(None);
        }
        if self.is_status() {
            return Ok(None);
        }
        self.head = None;
        self.check_kind()?;
        Ok(Some(FoundEvent::TypeMeta))
    }

    /// Skips a value. Returns true at its end.
    fn skip(&mut self, key: Key, input: &mut &[u8]) -> Result<bool, DecodeError> {
        let end = self.scan.end(input).map_err(|fault| self.malformed(key, fault))?;
        self.list.take(end.unwrap_or(input.len()) as u64, input);
        Ok(end.is_some())
    }

    fn null<'i>(&mut self, key: Key, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        if !self.skip(key, input)? {
            return Ok(None);
        }
        if key == Key::Item {
            self.list.scratch.extend_from_slice(b"null");
            self.list.items += 1;
            self.state = JsonListState::ElementEnd;
            return Ok(Some(FoundEvent::SplitItem));
        }
        // `null` is an empty list of items.
        self.has_items |= key == Key::Items;
        self.state = JsonListState::MemberEnd;
        Ok(None)
    }

    fn begin_item<'i>(&mut self, byte: u8, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        self.list.field_start = self.list.position;
        let max = self.list.limits.items;
        if self.list.index() >= max {
            let kind = DecodeErrorKind::Limit { limit: Limit::Items, size: self.list.index() + 1, max };
            return Err(self.list.item_error(kind));
        }
        self.list.scratch.clear();
        self.scan = Scan::new(byte, 2);
        if byte != b'{' {
            self.state = JsonListState::Null(Key::Item);
            return Ok(None);
        }
        self.item(0, input)
    }

    fn item<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let max = self.list.limits.item_size;
        let window = first(input, (max - len).saturating_add(1));
        let end = self.scan.end(window).map_err(|fault| self.malformed(Key::Item, fault))?;
        let piece = self.list.take(end.unwrap_or(window.len()) as u64, input);
        let len = len + piece.len() as u64;
        if len > max {
            if !self.list.skips_oversized {
                let kind = DecodeErrorKind::Limit { limit: Limit::ItemSize, size: len, max };
                return Err(self.list.item_error(kind));
            }
            self.state = JsonListState::Oversized;
            return Ok(end.map(|_| self.end_oversized()));
        }
        if end.is_none() {
            self.list.keep(piece, max - len);
            self.state = JsonListState::Item { len };
            return Ok(None);
        }
        let is_split = !self.list.scratch.is_empty();
        if is_split {
            self.list.keep(piece, 0);
        }
        let item = if is_split { &self.list.scratch } else { piece };
        if item.last() != Some(&b'}') {
            return Err(self.malformed(Key::Item, Fault::Syntax));
        }
        if item.starts_with(STATUS)
            && let Some(status) = messages::status(item)
        {
            return Err(self.list.error(DecodeErrorKind::Api(status.into())));
        }
        self.list.items += 1;
        self.state = JsonListState::ElementEnd;
        Ok(Some(if is_split { FoundEvent::SplitItem } else { FoundEvent::Item(piece) }))
    }

    fn end_oversized(&mut self) -> FoundEvent<'static> {
        self.state = JsonListState::ElementEnd;
        self.list.skip_oversized(self.list.position - self.list.field_start)
    }

    /// Checks at the body's closing brace that the body has all required members.
    fn close(&mut self) -> Result<(), DecodeError> {
        if self.is_status() {
            let mut head = self.head.take().unwrap_or_default();
            head.push(b'}');
            let kind = match messages::status(&head) {
                Some(status) => DecodeErrorKind::Api(status.into()),
                None => DecodeErrorKind::Malformed { field: "the body", fault: Fault::Status },
            };
            return Err(DecodeError::new(kind, 0, None, self.list.items));
        }
        if self.list.type_meta.kind.is_empty() {
            return Err(self.malformed(Key::Kind, Fault::Missing));
        }
        self.check_kind()?;
        if self.list.type_meta.api_version.is_empty() {
            return Err(self.malformed(Key::ApiVersion, Fault::Missing));
        }
        if !self.has_items && self.list.type_meta.kind.ends_with("List") {
            return Err(self.malformed(Key::Items, Fault::Missing));
        }
        if !self.has_items {
            return Err(self.list.error(self.list.unexpected_kind()));
        }
        Ok(())
    }

    /// Returns true if the body so far is an error of the API server. Some servers omit its version.
    fn is_status(&self) -> bool {
        let TypeMeta { api_version, kind } = &self.list.type_meta;
        self.head.is_some() && kind == "Status" && matches!(api_version.as_str(), "" | "v1")
    }

    /// Refuses a kind that is known not to be a list of objects. For other kinds, `items` decides, because the
    /// definition of a custom resource chooses any kind for its lists (`spec.names.listKind`).
    fn check_kind(&self) -> Result<(), DecodeError> {
        let TypeMeta { api_version, kind } = &self.list.type_meta;
        let is_table = kind == "Table" && api_version.starts_with("meta.k8s.io/");
        if is_table || matches!(kind.as_str(), "Status" | "APIResourceList" | "APIGroupList") {
            return Err(self.list.error(self.list.unexpected_kind()));
        }
        Ok(())
    }

    fn keep_head(&mut self, taken: &[u8]) -> Result<(), DecodeError> {
        let is_status = self.is_status();
        let Some(head) = &mut self.head else { return Ok(()) };
        head.extend_from_slice(taken);
        let max = self.list.limits.metadata_size;
        if head.len() as u64 > max {
            self.head = None;
            if is_status {
                return Err(self.over_at(0, Limit::MetadataSize, max));
            }
        }
        Ok(())
    }

    fn malformed(&self, key: Key, fault: Fault) -> DecodeError {
        let kind = DecodeErrorKind::Malformed { field: key.name(), fault };
        if key == Key::Item { self.list.item_error(kind) } else { self.list.error(kind) }
    }

    /// Returns the error for an unexpected byte between members.
    fn in_body(&self, fault: Fault) -> DecodeError {
        let kind = DecodeErrorKind::Malformed { field: "the body", fault };
        DecodeError::new(kind, self.list.position, None, self.list.items)
    }

    fn over_at(&self, offset: u64, limit: Limit, max: u64) -> DecodeError {
        DecodeError::new(DecodeErrorKind::Limit { limit, size: max + 1, max }, offset, None, self.list.items)
    }
}

impl ListBody for JsonList {
    fn is_complete(&self) -> bool {
        matches!(self.state, JsonListState::End)
    }

    fn unfinished_item(&self) -> Option<u64> {
        let is_in_item = matches!(
            self.state,
            JsonListState::Item { .. } | JsonListState::Oversized | JsonListState::Null(Key::Item)
        );
        is_in_item.then(|| self.list.index())
    }

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        while !input.is_empty() {
            let max = self.list.limits.bytes;
            if self.list.position >= max {
                return Err(self.over_at(self.list.position, Limit::Bytes, max));
            }
            let mut window = first(input, max - self.list.position);
            if let Some(head) = &self.head {
                window =
                    first(window, self.list.limits.metadata_size.saturating_add(1).saturating_sub(head.len() as u64));
            }
            let before = window;
            let found = self.step(&mut window)?;
            let (taken, _) = before.split_at(before.len() - window.len());
            *input = input.get(taken.len()..).unwrap_or_default();
            self.keep_head(taken)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn expected_bytes(&self) -> Option<u64> {
        None
    }

    fn list(&self) -> &BodyState {
        &self.list
    }

    fn list_mut(&mut self) -> &mut BodyState {
        &mut self.list
    }
}

impl Key {
    fn name(self) -> &'static str {
        match self {
            Self::ApiVersion => "apiVersion",
            Self::Kind => "kind",
            Self::ListMeta => "metadata",
            Self::Items | Self::Item => "items",
            Self::Object => "object",
            Self::Other => "an unknown field",
        }
    }
}

fn first(input: &[u8], len: u64) -> &[u8] {
    usize::try_from(len).ok().and_then(|len| input.get(..len)).unwrap_or(input)
}
