//! Text of a server, made safe for a terminal.

use std::borrow::Cow;

/// Escapes control characters, so that a name cannot forge a line or control the terminal.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    // Most text is printable ASCII.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}
