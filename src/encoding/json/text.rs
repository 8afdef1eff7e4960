//! JSON text as Go writes it: strings with the escapes of `encoding/json`, and JSON without whitespace.

use std::io::Write as _;

use serde::de::IgnoredAny;

use crate::encoding::utf8;
use crate::wire::Fault;

/// Writes text that may not be UTF-8, as [`write_str`] does, with an escaped U+FFFD in place of each invalid byte.
pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if let Ok(text) = str::from_utf8(text) {
        return write_str(text, out);
    }
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        write_contents(chunk.valid(), out);
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(b"\\ufffd"));
    }
    out.push(b'"');
}

/// Writes a string with the escapes of `encoding/json`, safe for embedding in HTML.
pub(crate) fn write_str(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_contents(text, out);
    out.push(b'"');
}

fn write_contents(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    if !text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\') || is_html(byte)) {
        out.extend_from_slice(text.as_bytes());
        rest = "";
    }
    while let Some(at) =
        rest.find(|c: char| matches!(c, ..' ' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}'))
    {
        let (plain, from) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = from.chars();
        match chars.next() {
            Some(c @ ('"' | '\\')) => out.extend_from_slice(&[b'\\', c as u8]),
            Some('\u{8}') => out.extend_from_slice(b"\\b"),
            Some('\u{c}') => out.extend_from_slice(b"\\f"),
            Some('\n') => out.extend_from_slice(b"\\n"),
            Some('\r') => out.extend_from_slice(b"\\r"),
            Some('\t') => out.extend_from_slice(b"\\t"),
            Some(c) => write_unicode(c, out),
            None => {}
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

pub(crate) fn write_name(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_str(name, out);
    out.push(b':');
}

/// Writes JSON within JSON, as Go does: without whitespace, and safe for embedding in HTML.
pub(crate) fn write_raw(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    serde_json::from_slice::<IgnoredAny>(raw).map_err(|_| Fault::Value)?;
    write_compact(raw, out);
    Ok(())
}

/// Writes JSON that was already checked, or a part of it, without whitespace, and with U+FFFD in place of each byte
/// that is not UTF-8.
pub(crate) fn write_compact(raw: &[u8], out: &mut Vec<u8>) {
    let text = utf8::replaced(raw);
    // API servers write JSON in this form.
    if !text.bytes().any(|byte| byte <= b' ' || is_html(byte)) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write_unicode(c, out),
            ' ' | '\n' | '\r' | '\t' if !in_string => {}
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        in_string ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
}

/// Returns true if the byte begins a character that Go escapes for HTML or JavaScript.
fn is_html(byte: u8) -> bool {
    // 0xe2 begins U+2028, U+2029 and other characters.
    matches!(byte, b'<' | b'>' | b'&' | 0xe2)
}

fn write_unicode(c: char, out: &mut Vec<u8>) {
    write(out, format_args!("\\u{:04x}", u32::from(c)));
}

/// Writing to a `Vec` cannot fail.
pub(crate) fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
