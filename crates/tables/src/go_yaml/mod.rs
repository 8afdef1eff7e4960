//! Values as kubectl writes them in YAML.
//!
//! # Advice
//!
//! kubectl converts an object to JSON and that to YAML by `sigs.k8s.io/yaml`, whose emitter is that of
//! `go.yaml.in/yaml/v2`, a port of libyaml. No crate writes the same bytes: where lines are folded, which texts are
//! quoted and how, the order of keys and the form of floats are the emitter's own. So this is that emitter, without
//! what no value of JSON needs: anchors, tags, directives and flow collections other than empty ones.
//!
//! | file | in Go | decides |
//! |---|---|---|
//! | `mod.rs` | `emitterc.go` | indentation and line breaks, the order of events |
//! | `key_order.rs` | `sorter.go` | the order of the keys of a map |
//! | `scalar.rs` | `resolve.go`, `encode.go`, `yaml_emitter_analyze_scalar` | the style of a text, the text of a number |
//! | `write_scalar.rs` | `yaml_emitter_write_*_scalar` | escapes and folds |
//!
//! kubectl fails on texts with control characters that YAML forbids, such as U+007F, because it parses JSON as YAML.
//! Here they are escaped.

mod key_order;
mod scalar;
mod write_scalar;

use serde_json::Value;

use self::key_order::sorted_keys;
use self::scalar::{Style, style_of, yaml_number};

/// The columns that a level of nesting adds.
const INDENT: usize = 2;

/// The length up to which a key of one line stands before its colon without a question mark.
const SIMPLE_KEY: usize = 128;

/// Appends a value as a YAML document, as kubectl prints an object with `-o yaml`.
pub fn write_go_yaml(value: &Value, out: &mut Vec<u8>) {
    let mut emitter = Emitter::new(out);
    emitter.node(value, Context::Root);
    emitter.line_end();
}

/// Appends a value as an item of a sequence that is not indented, such as `items` of a List.
pub fn write_go_yaml_item(value: &Value, out: &mut Vec<u8>) {
    let mut emitter = Emitter::new(out);
    emitter.indent = Some(0);
    emitter.item(value);
    emitter.line_end();
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    /// Before a colon, in one line.
    SimpleKey,
    /// After a question mark, or the value of a mapping.
    Mapping,
}

struct Emitter<'a> {
    out: &'a mut Vec<u8>,
    /// The indentation of the innermost collection; `None` outside of collections.
    indent: Option<usize>,
    /// The number of characters in this line.
    column: usize,
    /// True after whitespace, so that an indicator needs none before it.
    whitespace: bool,
    /// True if the line has only indentation and indicators of block collections.
    indention: bool,
}

impl<'a> Emitter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, indent: None, column: 0, whitespace: true, indention: true }
    }

    fn node(&mut self, value: &Value, context: Context) {
        match value {
            Value::Array(values) if values.is_empty() => self.empty(b"[", b"]"),
            Value::Object(members) if members.is_empty() => self.empty(b"{", b"}"),
            Value::Array(values) => {
                let outer = self.indent;
                // A sequence in a mapping is as far to the right as its key.
                if context != Context::Mapping || self.indention {
                    self.increase_indent(0);
                }
                for value in values {
                    self.item(value);
                }
                self.indent = outer;
            }
            Value::Object(members) => {
                let outer = self.indent;
                self.increase_indent(0);
                for key in sorted_keys(members) {
                    self.write_indent();
                    self.key(key);
                    if let Some(value) = members.get(key) {
                        self.node(value, Context::Mapping);
                    }
                }
                self.indent = outer;
            }
            Value::Null => self.scalar("null", Style::Plain, context),
            Value::Bool(value) => self.scalar(if *value { "true" } else { "false" }, Style::Plain, context),
            Value::Number(number) => self.scalar(&yaml_number(number), Style::Plain, context),
            Value::String(text) => {
                let style = style_of(text, context == Context::SimpleKey);
                self.scalar(text, style, context);
            }
        }
    }

    /// Writes an item of a sequence.
    fn item(&mut self, value: &Value) {
        self.write_indent();
        self.write_indicator(b"-", true, false, true);
        self.node(value, Context::Item);
    }

    /// Writes a key and its colon.
    fn key(&mut self, key: &str) {
        if key.len() <= SIMPLE_KEY && !scalar::is_multiline(key) {
            self.scalar(key, style_of(key, true), Context::SimpleKey);
            self.write_indicator(b":", false, false, false);
            return;
        }
        self.write_indicator(b"?", true, false, true);
        self.scalar(key, style_of(key, false), Context::Mapping);
        self.write_indent();
        self.write_indicator(b":", true, false, true);
    }

    fn scalar(&mut self, text: &str, style: Style, context: Context) {
        let outer = self.indent;
        self.increase_indent(INDENT);
        self.write_scalar(text, style, context != Context::SimpleKey);
        self.indent = outer;
    }

    fn empty(&mut self, open: &[u8], close: &[u8]) {
        self.write_indicator(open, true, true, false);
        self.write_indicator(close, false, false, false);
    }

    /// Indents one level more, or from outside of collections by `first`.
    fn increase_indent(&mut self, first: usize) {
        self.indent = Some(self.indent.map_or(first, |indent| indent + INDENT));
    }

    /// Begins a line at the current indentation, unless it has begun.
    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.put_break();
        }
        while self.column < indent {
            self.put(b' ');
        }
        (self.whitespace, self.indention) = (true, true);
    }

    fn write_indicator(&mut self, indicator: &[u8], needs_whitespace: bool, is_whitespace: bool, is_indention: bool) {
        if needs_whitespace && !self.whitespace {
            self.put(b' ');
        }
        for byte in indicator {
            self.put(*byte);
        }
        self.whitespace = is_whitespace;
        self.indention &= is_indention;
    }

    /// Ends the last line of a document.
    fn line_end(&mut self) {
        self.indent = None;
        self.write_indent();
    }

    fn put(&mut self, byte: u8) {
        self.out.push(byte);
        self.column += 1;
    }

    fn put_char(&mut self, character: char) {
        self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn put_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
    }
}
