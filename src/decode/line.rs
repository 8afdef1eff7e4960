//! What one line of a JSON watch says.

use std::borrow::Cow;
use std::mem;

use super::frame::{EventType, Frame, INITIAL_EVENTS_END, Unread};
use super::scan::Scan;
use crate::error::Fault;
use crate::item::json;

/// Whether a body that begins so is a watch, by the name of its first member, as soon as that shows.
///
/// Lists, single objects and Statuses begin with other names. A line break before the name is none of a watch.
pub(super) fn is_event(beginning: &[u8]) -> Option<bool> {
    let inner = beginning.strip_prefix(b"{")?;
    let spaces = inner.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    let name = inner.get(spaces..).unwrap_or_default();
    let names = [&br#""type""#[..], br#""object""#];
    if names.iter().any(|known| name.starts_with(known)) {
        return Some(true);
    }
    if names.iter().any(|known| known.starts_with(name)) { None } else { Some(false) }
}

/// Reads a line that does not begin with a space.
pub(super) fn read(line: &[u8]) -> Result<Frame<'_>, Unread> {
    let (mut frame, mut annotations) = (Frame::default(), &b""[..]);
    let mut line = Cursor { rest: line };
    line.members("the frame", |name, line| {
        match name {
            b"type" => {
                if let Some(event) = line.text("type")? {
                    frame.event = Some(EventType::of(event.as_bytes()));
                }
            }
            b"object" => {
                line.first();
                let from = line.rest;
                annotations = b"";
                frame = Frame { event: frame.event, ..object(line, &mut annotations)? };
                frame.object = from.get(..from.len() - line.rest.len());
            }
            _ => drop(line.value("the frame", 1)?),
        }
        Ok(())
    })?;
    if line.first().is_some() {
        return Err(("the frame", Fault::Syntax));
    }
    if frame.event == Some(EventType::Bookmark) && !annotations.is_empty() {
        let field = "metadata.annotations";
        Cursor { rest: annotations }.members(field, |name, line| {
            if name != INITIAL_EVENTS_END.as_bytes() {
                return line.value(field, 4).map(drop);
            }
            frame.ends_initial_events = line.text(field)?.as_deref() == Some("true");
            Ok(())
        })?;
    }
    Ok(frame)
}

fn object<'a>(line: &mut Cursor<'a>, annotations: &mut &'a [u8]) -> Result<Frame<'a>, Unread> {
    let mut frame = Frame::default();
    line.members("object", |name, line| {
        match name {
            b"apiVersion" => frame.api_version = line.text("apiVersion")?.unwrap_or(mem::take(&mut frame.api_version)),
            b"kind" => frame.kind = line.text("kind")?.unwrap_or(mem::take(&mut frame.kind)),
            b"metadata" if line.first() == Some(b'{') => line.members("metadata", |name, line| {
                match name {
                    b"resourceVersion" => {
                        let version = line.text("metadata.resourceVersion")?;
                        frame.resource_version = version.unwrap_or(mem::take(&mut frame.resource_version));
                    }
                    b"annotations" if line.first() == Some(b'{') => *annotations = line.value("metadata", 3)?,
                    _ => drop(line.value("metadata", 3)?),
                }
                Ok(())
            })?,
            _ => drop(line.value("object", 2)?),
        }
        Ok(())
    })?;
    Ok(frame)
}

/// What is left of the line.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// The next byte that is no space. It is left there.
    fn first(&mut self) -> Option<u8> {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        taken
    }

    fn expect(&mut self, byte: u8, field: &'static str) -> Result<(), Unread> {
        if self.first() != Some(byte) {
            return Err((field, Fault::Syntax));
        }
        self.take(1);
        Ok(())
    }

    /// Calls `on_member` with each name, for it to take the value.
    fn members(
        &mut self,
        field: &'static str,
        mut on_member: impl FnMut(&[u8], &mut Self) -> Result<(), Unread>,
    ) -> Result<(), Unread> {
        match self.first() {
            Some(b'{') => self.take(1),
            Some(b'"' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => return Err((field, Fault::Type)),
            _ => return Err((field, Fault::Syntax)),
        };
        if self.first() == Some(b'}') {
            return self.expect(b'}', field);
        }
        loop {
            let name = self.string(field)?;
            let escaped;
            let name = match name {
                [b'"', name @ .., b'"'] if !name.contains(&b'\\') => name,
                name => {
                    escaped = json::string(name).map_err(|fault| (field, fault))?;
                    escaped.as_bytes()
                }
            };
            self.expect(b':', field)?;
            on_member(name, self)?;
            if self.first() != Some(b',') {
                return self.expect(b'}', field);
            }
            self.take(1);
        }
    }

    /// A string with its quotes.
    fn string(&mut self, field: &'static str) -> Result<&'a [u8], Unread> {
        if self.first() != Some(b'"') {
            return Err((field, Fault::Syntax));
        }
        let mut end = 1;
        loop {
            // Nearly all of them are short.
            let mut behind = self.rest.get(end..).unwrap_or_default().iter();
            let at = behind.position(|byte| matches!(byte, b'"' | b'\\')).ok_or((field, Fault::Syntax))?;
            end += at + 1;
            if self.rest.get(end - 1) == Some(&b'"') {
                return Ok(self.take(end));
            }
            end += 1;
        }
    }

    /// The text of a string; `None` for `null`, which sets nothing.
    fn text(&mut self, field: &'static str) -> Result<Option<Cow<'a, str>>, Unread> {
        match self.first() {
            Some(b'"') => {
                let string = self.string(field)?;
                let text = match string {
                    [b'"', text @ .., b'"'] if text.iter().all(|byte| *byte >= b' ' && *byte != b'\\') => {
                        str::from_utf8(text).map(Cow::Borrowed).map_err(|_| Fault::Utf8)
                    }
                    _ => json::string(string),
                };
                text.map(Some).map_err(|fault| (field, fault))
            }
            Some(b'n') => self.value(field, 0).map(|_| None),
            Some(b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f') => Err((field, Fault::Type)),
            _ => Err((field, Fault::Syntax)),
        }
    }

    /// Takes a value that is so deep in brackets. Of objects and arrays it looks for the end only.
    fn value(&mut self, field: &'static str, outer_depth: u32) -> Result<&'a [u8], Unread> {
        match self.first() {
            Some(b'"') => self.string(field),
            Some(first @ (b'{' | b'[')) => {
                let end = Scan::new(first, outer_depth).end(self.rest).map_err(|fault| (field, fault))?;
                Ok(self.take(end.ok_or((field, Fault::Syntax))?))
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                let scalar = self.take(self.rest.iter().position(ends).unwrap_or(self.rest.len()));
                if json::is_scalar(scalar) { Ok(scalar) } else { Err((field, Fault::Syntax)) }
            }
        }
    }
}
