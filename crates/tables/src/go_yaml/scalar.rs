//! The style of a text, and the text of a number.

use serde_json::Number;

use crate::go_json::go_float;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Returns the style of a text, which as a key may have to stand in one line.
pub(super) fn style_of(text: &str, is_simple_key: bool) -> Style {
    let facts = Facts::of(text);
    let style = match text {
        _ if text.contains('\n') => Style::Literal,
        _ if resolves_to_text(text) => Style::Plain,
        _ => Style::DoubleQuoted,
    };
    match style {
        Style::Plain if facts.plain_allowed => Style::Plain,
        Style::Plain if facts.single_quoted_allowed => Style::SingleQuoted,
        Style::Literal if facts.block_allowed && !is_simple_key => Style::Literal,
        _ => Style::DoubleQuoted,
    }
}

/// Returns true for a text of several lines, which cannot stand before a colon.
pub(super) fn is_multiline(text: &str) -> bool {
    text.contains(is_break)
}

/// Returns the text of a number, as kubectl reads and writes it: `100.0` is the integer 100.
pub(super) fn yaml_number(number: &Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    // client-go reads larger integers as floats too.
    let Some(float) = number.as_f64() else { return number.to_string() };
    if float == 0.0 {
        return "0".to_owned();
    }
    // Rust writes all digits of an integer, and no dot.
    let digits = float.to_string();
    if digits.parse::<i64>().is_ok() || digits.parse::<u64>().is_ok() { digits } else { go_float(float, -4..6) }
}

pub(super) fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns true for a character that is written as it is. As in libyaml, those beyond U+FFFF are not.
pub(super) fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// What decides which styles a text may have.
struct Facts {
    plain_allowed: bool,
    single_quoted_allowed: bool,
    block_allowed: bool,
}

impl Facts {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self { plain_allowed: true, single_quoted_allowed: true, block_allowed: false };
        }
        let mut has_indicator = text.starts_with("---") || text.starts_with("...");
        let (mut has_special, mut has_break) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut previous = None;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let is_followed_by_blank = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            has_indicator |= match (character, previous) {
                (
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
                    None,
                ) => true,
                ('?' | '-', None) | (':', _) => is_followed_by_blank,
                ('#', Some(before)) => matches!(before, ' ' | '\t' | '\0') || is_break(before),
                _ => false,
            };
            has_special |= !is_printable(character);
            has_break |= is_break(character);
            break_space |= character == ' ' && previous.is_some_and(is_break);
            space_break |= is_break(character) && previous == Some(' ');
            previous = Some(character);
        }
        let is_blank = |character: char| character == ' ' || is_break(character);
        let is_padded = text.starts_with(is_blank) || text.ends_with(is_blank);
        let single_quoted_allowed = !(break_space || space_break || has_special);
        Self {
            plain_allowed: single_quoted_allowed && !is_padded && !has_break && !has_indicator,
            single_quoted_allowed,
            block_allowed: !(text.ends_with(' ') || space_break || has_special),
        }
    }
}

/// Returns true if a parser of YAML 1.1 takes the text without quotes for a text.
fn resolves_to_text(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    let is_word = || {
        matches!(
            text,
            "y" | "Y"
                | "yes"
                | "Yes"
                | "YES"
                | "true"
                | "True"
                | "TRUE"
                | "on"
                | "On"
                | "ON"
                | "n"
                | "N"
                | "no"
                | "No"
                | "NO"
                | "false"
                | "False"
                | "FALSE"
                | "off"
                | "Off"
                | "OFF"
                | "~"
                | "null"
                | "Null"
                | "NULL"
        )
    };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => !is_word(),
        b'.' => {
            !matches!(text, ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF") && !is_float(&without_separators(text))
        }
        b'+' | b'-' if matches!(text.get(1..), Some(".inf" | ".Inf" | ".INF")) => false,
        b'+' | b'-' | b'0'..=b'9' => {
            let plain = text.replace('_', "");
            !(is_timestamp(text) || is_integer(&plain) || is_float(&plain) || is_base_60(text))
        }
        _ => true,
    }
}

/// Returns true for what `strconv.ParseInt` and `ParseUint` read with base 0, and for negative binary numbers.
fn is_integer(text: &str) -> bool {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let has_sign = unsigned.len() < text.len();
    let (digits, radix) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (unsigned.get(2..), 16),
        [b'0', b'b' | b'B', ..] => (unsigned.get(2..), 2),
        [b'0', b'o' | b'O', ..] => (unsigned.get(2..), 8),
        [b'0', _, ..] => (unsigned.get(1..), 8),
        _ => (Some(unsigned), 10),
    };
    let Some(digits) = digits.filter(|digits| digits.starts_with(|c: char| c.is_ascii_alphanumeric())) else {
        return false;
    };
    match u64::from_str_radix(digits, radix) {
        Ok(number) if is_negative => number <= i64::MIN.unsigned_abs(),
        Ok(number) => !has_sign || i64::try_from(number).is_ok(),
        Err(_) => false,
    }
}

/// Returns true for `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$` that is not beyond the range of floats.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = are_digits(whole) && are_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    is_number
        && exponent.is_none_or(|exponent| !exponent.is_empty() && are_digits(exponent))
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Returns the text without underscores between two digits.
fn without_separators(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_separator =
        |at: usize, character: char| character == '_' && is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1));
    text.char_indices()
        .filter(|(at, character)| !is_separator(*at, *character))
        .map(|(_, character)| character)
        .collect()
}

/// Returns true for `^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$`, such as `10:30`.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [digit] | [b'0'..=b'5', digit] => digit.is_ascii_digit(),
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(is_digit)
        && rest.peek().is_some()
        && rest.all(is_sixtieth)
        && fraction.bytes().all(is_digit)
}

/// Returns true for a date, or a date with a time, in the forms that the emitter knows.
fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) =
        text.split_at_checked(4).filter(|(year, _)| year.bytes().all(|byte| byte.is_ascii_digit()))
    else {
        return false;
    };
    let mut rest = rest;
    let mut number = |prefix: &[char]| -> Option<u32> {
        let digits = rest.strip_prefix(prefix)?;
        let length = digits.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let (digits, after) = digits.split_at_checked(length)?;
        rest = after;
        digits.parse().ok()
    };
    let (Some(month), Some(day), Ok(year)) = (number(&['-']), number(&['-']), year.parse::<u32>()) else {
        return false;
    };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    if !(1..=days).contains(&day) {
        return false;
    }
    if rest.is_empty() {
        return true;
    }
    let has_zone = !rest.starts_with(' ');
    let mut number = |prefix: &[char], most: u32| -> bool {
        let Some(digits) = rest.strip_prefix(prefix) else { return false };
        let length = digits.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let Some((digits, after)) = digits.split_at_checked(length) else { return false };
        rest = after;
        digits.parse::<u32>().is_ok_and(|number| number <= most)
    };
    if !(number(&['T', 't', ' '], 23) && number(&[':'], 59) && number(&[':'], 59)) {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=9).contains(&length) {
            return false;
        }
        rest = fraction.get(length..).unwrap_or_default();
    }
    match (has_zone, rest.as_bytes()) {
        (false, rest) => rest.is_empty(),
        (true, b"Z") => true,
        (true, [b'+' | b'-', h1, h2, b':', m1, m2]) => {
            let two = |a: &u8, b: &u8| {
                [a, b].iter().all(|digit| digit.is_ascii_digit()).then(|| (a - b'0') * 10 + (b - b'0'))
            };
            two(h1, h2).is_some_and(|hours| hours <= 24) && two(m1, m2).is_some_and(|minutes| minutes < 60)
        }
        _ => false,
    }
}
