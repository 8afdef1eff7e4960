//! The query of a read, parsed by the rules of the API server.

use listwatch::{FieldSelector, InvalidInput, LabelSelector, StatusCause};

use crate::request::ReadKind;
use crate::status::{self, Refusal};

/// The parameters of a read. Strings are `""` if the parameter is absent, as for the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// The text of `fields`.
    pub(crate) field_selector: String,
    /// 0 if absent. The API server ignores negative limits.
    pub(crate) limit: i64,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: Match,
    pub(crate) allow_watch_bookmarks: bool,
    /// Never `None` for a watch without a version or from version `0`.
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) pretty: bool,
    pub(crate) shard_selector: String,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Match {
    #[default]
    Unset,
    NotOlderThan,
    Exact,
}

/// Splits a query into decoded pairs. The API server ignores malformed pairs; the mirror refuses them, because it must read
/// what the server reads.
pub(crate) fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    if query.contains(';') || !has_valid_escapes(query) {
        return Err(status::bad_request("the query has an invalid escape or a semicolon").into());
    }
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    // Escapes that are not UTF-8 became U+FFFD.
    if pairs.iter().any(|(name, value)| name.contains('\u{fffd}') || value.contains('\u{fffd}') || value.contains('\0'))
    {
        return Err(status::bad_request("the query is not text").into());
    }
    Ok(pairs)
}

/// Returns true if two hexadecimal digits follow each `%`.
pub(crate) fn has_valid_escapes(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.as_bytes().split(|byte| *byte == b'%').skip(1).all(|rest| is_hex(rest.first()) && is_hex(rest.get(1)))
}

/// Parses the parameters. Returns `None` if one of them is unknown, so that the API server must answer.
///
/// # Errors
///
/// 400 for a number that is none or a selector that is none, 422 for a combination that the API server refuses. The
/// order of the checks and the messages are the API server's: `listOpts` in apiserver `pkg/endpoints/handlers/get.go`
/// decodes the parameters, then sets defaults, then validates.
pub(crate) fn parse(kind: ReadKind, pairs: &[(String, String)]) -> Result<Option<Params>, Refusal> {
    // A GET of one object has fewer options, and ignores those of lists.
    const OF_GET: [&str; 3] = ["pretty", "resourceVersion", "timeout"];
    const OF_LISTS: [&str; 10] = [
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersionMatch",
        "sendInitialEvents",
        "shardSelector",
        "timeoutSeconds",
        "watch",
    ];
    let is_known = |name: &str| OF_GET.contains(&name) || kind != ReadKind::Get && OF_LISTS.contains(&name);
    if !pairs.iter().all(|(name, _)| is_known(name)) {
        return Ok(None);
    }
    let text = |name| first(pairs, name).unwrap_or_default().to_owned();
    // The API server refuses a timeout that it cannot parse, but it ignores the timeout of a watch.
    if kind != ReadKind::Watch && !is_duration(&text("timeout")) {
        return Ok(None);
    }
    let mut match_text = text("resourceVersionMatch");
    let timeout_seconds = number(pairs, "timeoutSeconds")?;
    let limit = number(pairs, "limit")?.unwrap_or_default();
    let mut params = Params {
        labels: text("labelSelector").parse().map_err(|error| not_parsed(&error))?,
        fields: text("fieldSelector").parse().map_err(|error| not_parsed(&error))?,
        field_selector: text("fieldSelector"),
        limit,
        continue_token: text("continue"),
        resource_version: text("resourceVersion"),
        resource_version_match: Match::Unset,
        allow_watch_bookmarks: flag(pairs, "allowWatchBookmarks").unwrap_or_default(),
        send_initial_events: flag(pairs, "sendInitialEvents"),
        timeout_seconds,
        pretty: flag(pairs, "pretty").unwrap_or_default(),
        shard_selector: text("shardSelector"),
    };
    let is_versioned = !matches!(&*params.resource_version, "" | "0");
    // `SetListOptionsDefaults` of apimachinery: such a watch begins with the objects of the collection.
    if kind == ReadKind::Watch && !is_versioned && params.send_initial_events.is_none() && match_text.is_empty() {
        params.send_initial_events = Some(true);
        "NotOlderThan".clone_into(&mut match_text);
    }
    params.resource_version_match = match &*match_text {
        "NotOlderThan" => Match::NotOlderThan,
        "Exact" => Match::Exact,
        _ => Match::Unset,
    };
    let causes = match kind {
        ReadKind::Get => Vec::new(),
        ReadKind::List => of_list(&params, &match_text),
        ReadKind::Watch => of_watch(&params, &match_text),
    };
    if !causes.is_empty() {
        return Err(status::invalid_list_options(causes).into());
    }
    Ok(Some(params))
}

/// Returns the first value of a parameter: the API server ignores the others.
pub(crate) fn first<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Parses a flag as apimachinery does: only `0` and `false`, in any case, are false; an empty value is true.
pub(crate) fn flag(pairs: &[(String, String)], name: &str) -> Option<bool> {
    first(pairs, name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn number(pairs: &[(String, String)], name: &str) -> Result<Option<i64>, Refusal> {
    first(pairs, name).map(|value| parse_int(value).map_err(|error| status::bad_request(error).into())).transpose()
}

fn not_parsed(error: &InvalidInput) -> Refusal {
    status::bad_request(error.to_string()).into()
}

/// Returns true for no text, and for text that Go's `time.ParseDuration` accepts. The API server decides about unusual
/// texts.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if text.is_empty() || rest == "0" {
        return true;
    }
    loop {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - unit.len()];
        let after = ["ns", "us", "ms", "s", "m", "h"].iter().find_map(|name| unit.strip_prefix(name));
        match after {
            Some(after) if number.parse::<f64>().is_ok() && number.len() < 16 => rest = after,
            _ => return false,
        }
        if rest.is_empty() {
            return true;
        }
    }
}

/// Parses a number as Go's `strconv.ParseInt` does, with its message.
fn parse_int(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    }
    text.parse().map_err(|_| format!("strconv.ParseInt: parsing {text:?}: value out of range"))
}

/// Returns the name if the field selector has the term `metadata.name=NAME`. The API server authorizes such a list or watch
/// for the name.
pub(crate) fn selected_name(selector: &str) -> Option<String> {
    // With escapes, commas do not separate terms. Without a name, the reader needs more rights, never less.
    if selector.contains('\\') || selector.parse::<FieldSelector>().is_err() {
        return None;
    }
    // As the API server, which sorts the terms and uses the first.
    let names = selector.split(',').filter_map(|term| Some((term, term.split_once('=')?)));
    let (_, (_, value)) = names.filter(|(_, (path, _))| *path == "metadata.name").min()?;
    let name = value.strip_prefix('=').unwrap_or(value);
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%', '=', '!']);
    is_name.then(|| name.to_owned())
}

/// `ValidateListOptions` of apimachinery.
fn of_list(params: &Params, match_text: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if !match_text.is_empty() {
        if params.resource_version.is_empty() {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !params.continue_token.is_empty() {
            causes
                .push(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
        }
        if params.resource_version_match == Match::Unset {
            causes.push(unsupported("resourceVersionMatch", match_text, r#""Exact", "NotOlderThan", """#));
        }
        if params.resource_version_match == Match::Exact && params.resource_version == "0" {
            causes.push(forbidden(
                "resourceVersionMatch",
                r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ));
        }
    }
    if params.send_initial_events.is_some() {
        causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

/// `validateWatchOptions` of apimachinery, with the feature gate `WatchList`.
fn of_watch(params: &Params, match_text: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let is_not_older_than = params.resource_version_match == Match::NotOlderThan;
    if params.send_initial_events.is_some() && !is_not_older_than {
        let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(forbidden("resourceVersionMatch", message));
    }
    if !match_text.is_empty() {
        if params.send_initial_events.is_none() {
            let message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden("resourceVersionMatch", message));
        }
        if !is_not_older_than {
            causes.push(unsupported("resourceVersionMatch", match_text, r#""NotOlderThan""#));
        }
        if !params.continue_token.is_empty() {
            causes
                .push(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    causes
}

fn forbidden(field: &str, message: &str) -> StatusCause {
    status::cause("FieldValueForbidden", format!("Forbidden: {message}"), field)
}

fn unsupported(field: &str, value: &str, supported: &str) -> StatusCause {
    let message = format!("Unsupported value: {value:?}: supported values: {supported}");
    status::cause("FieldValueNotSupported", message, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: ReadKind, query: &str) -> Result<Option<Params>, Refusal> {
        parse(kind, &pairs(query)?)
    }

    /// Returns the code and the message of the error.
    fn refused(kind: ReadKind, query: &str) -> (i32, String) {
        let Err(Refusal::Status(status)) = parsed(kind, query) else { panic!("{query}") };
        (status.code, status.message)
    }

    #[test]
    fn reads_all_parameters_of_a_list() {
        let query = "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=%2B5&resourceVersion=7\
            &resourceVersionMatch=Exact&timeoutSeconds=-1&pretty=true&shardSelector=s";
        let expected = Params {
            labels: LabelSelector::new().equal("a", "b"),
            fields: FieldSelector::new().equal("metadata.name", "x"),
            field_selector: "metadata.name=x".to_owned(),
            limit: 5,
            resource_version: "7".to_owned(),
            resource_version_match: Match::Exact,
            timeout_seconds: Some(-1),
            pretty: true,
            shard_selector: "s".to_owned(),
            ..Params::default()
        };
        assert_eq!(parsed(ReadKind::List, query), Ok(Some(expected)));
    }

    #[test]
    fn only_0_and_false_are_false() {
        let send = |query: &str| parsed(ReadKind::Watch, query).unwrap().unwrap().allow_watch_bookmarks;
        for (value, expected) in
            [("1", true), ("", true), ("true", true), ("no", true), ("0", false), ("false", false), ("FALSE", false)]
        {
            assert_eq!(send(&format!("watch=1&allowWatchBookmarks={value}")), expected, "{value}");
        }
        assert!(send("allowWatchBookmarks=1&allowWatchBookmarks=0"));
        assert!(!send("watch=1"));
    }

    #[test]
    fn leaves_unknown_parameters_to_the_api_server() {
        assert_eq!(parsed(ReadKind::List, "limit=1&new=1"), Ok(None));
        assert_eq!(parsed(ReadKind::List, "Limit=1"), Ok(None));
        assert_eq!(parsed(ReadKind::Get, "limit=1"), Ok(None));
        assert_eq!(parsed(ReadKind::Get, "labelSelector=-a"), Ok(None));
        assert!(parsed(ReadKind::Get, "resourceVersion=0&pretty=1").unwrap().is_some());
    }

    #[test]
    fn leaves_timeouts_that_are_none_to_the_api_server() {
        for (timeout, is_one) in [
            ("", true),
            ("10s", true),
            ("1h2m0.5s", true),
            ("-1s", true),
            ("0", true),
            ("10", false),
            ("s", false),
            ("1.2.3s", false),
            ("1e3s", false),
            ("x", false),
            ("1s,", false),
            ("99999999999999999999h", false),
        ] {
            for kind in [ReadKind::Get, ReadKind::List] {
                assert_eq!(parsed(kind, &format!("timeout={timeout}")).unwrap().is_some(), is_one, "{timeout}");
            }
            assert!(parsed(ReadKind::Watch, &format!("timeout={timeout}")).unwrap().is_some(), "{timeout}");
        }
    }

    #[test]
    fn a_watch_without_a_version_begins_with_the_collection() {
        for (query, expected) in [
            ("", Some(true)),
            ("resourceVersion=0", Some(true)),
            ("resourceVersion=5", None),
            ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan", Some(false)),
            ("resourceVersion=5&sendInitialEvents=1&resourceVersionMatch=NotOlderThan", Some(true)),
        ] {
            let params = parsed(ReadKind::Watch, query).unwrap().unwrap();
            assert_eq!(params.send_initial_events, expected, "{query}");
        }
        assert_eq!(parsed(ReadKind::List, "").unwrap().unwrap().send_initial_events, None);
    }

    /// kube-apiserver 1.36 sends these messages.
    #[test]
    fn refuses_selectors_before_it_validates_combinations() {
        const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
            or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
            '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
            end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
            validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

        let value = |key: &str, value: &str| {
            format!("unable to parse requirement: values[0][{key}]: Invalid value: {value:?}: {VALUE}")
        };
        let name = |key: &str| format!("unable to parse requirement: <nil>: Invalid value: {key:?}: {NAME}");
        for kind in [ReadKind::List, ReadKind::Watch] {
            for (query, message) in [
                ("labelSelector=app%3D%22web%22", value("app", "\"web\"")),
                ("labelSelector=app%3D*", value("app", "*")),
                ("labelSelector=app:web", name("app:web")),
                ("labelSelector=a%3Db/c", value("a", "b/c")),
                ("labelSelector=-a&resourceVersionMatch=Exact", name("-a")),
                ("labelSelector=a>-5&fieldSelector=a", value("a", "-5")),
                ("labelSelector=a,,", "found ',', expected: identifier after ','".to_owned()),
                (
                    "fieldSelector=metadata.name",
                    "invalid selector: 'metadata.name'; can't understand 'metadata.name'".to_owned(),
                ),
                (
                    "fieldSelector=metadata.name%3Db%5C",
                    "invalid field selector: invalid escape sequence: \\".to_owned(),
                ),
                ("labelSelector=-a&limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#.to_owned()),
            ] {
                assert_eq!(refused(kind, query), (400, message), "{query}");
            }
        }
    }

    #[test]
    fn refuses_what_the_api_server_refuses() {
        let invalid = |message: &str| (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"));
        for (kind, query, expected) in [
            (ReadKind::List, "limit=x", (400, r#"strconv.ParseInt: parsing "x": invalid syntax"#.to_owned())),
            (ReadKind::List, "limit=", (400, r#"strconv.ParseInt: parsing "": invalid syntax"#.to_owned())),
            (
                ReadKind::Watch,
                "timeoutSeconds=9223372036854775808",
                (400, r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#.to_owned()),
            ),
            (
                ReadKind::List,
                "resourceVersionMatch=Exact",
                invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ),
            ),
            (
                ReadKind::List,
                "resourceVersionMatch=Exact&resourceVersion=0",
                invalid(
                    r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
                ),
            ),
            (
                ReadKind::List,
                "resourceVersionMatch=Newer&resourceVersion=1&sendInitialEvents=0",
                invalid(
                    r#"[resourceVersionMatch: Unsupported value: "Newer": supported values: "Exact", "NotOlderThan", "", sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]"#,
                ),
            ),
            (
                ReadKind::Watch,
                "resourceVersionMatch=NotOlderThan",
                invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
            ),
            (
                ReadKind::Watch,
                "continue=x",
                invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"),
            ),
            (
                ReadKind::Watch,
                "sendInitialEvents=1",
                invalid(
                    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
            ),
        ] {
            assert_eq!(refused(kind, query), expected, "{query}");
        }
        assert!(
            parsed(ReadKind::Watch, "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=").is_ok()
        );
        // Storage refuses it, after it has decoded the token.
        assert!(parsed(ReadKind::List, "continue=x&resourceVersion=5").is_ok());
    }
}
