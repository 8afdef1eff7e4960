//! The parameters of a read, parsed and validated by the rules of the API server.

use listwatch::{FieldSelector, InvalidInput, LabelSelector, StatusCause};

use super::attributes::ReadVerb;
use super::query::QueryPairs;
use crate::response::{Refusal, status};

/// The parameters of a read, named after `ListOptions` of apimachinery; a GET has few of them. Strings are `""` if the
/// parameter is absent, as for the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// The text of `fields`.
    pub(crate) field_selector: String,
    /// 0 if absent. The API server ignores negative limits.
    pub(crate) limit: i64,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: ResourceVersionMatch,
    pub(crate) allow_watch_bookmarks: bool,
    /// Never `None` for a watch without a version or from version `0`.
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) pretty: bool,
    pub(crate) shard_selector: String,
    pub(crate) include_object: IncludeObject,
}

/// `includeObject`: what a row of a Table has in addition to its cells. Other representations ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    #[default]
    Metadata,
    Object,
    None,
    /// A value that the API server refuses.
    Invalid,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    #[default]
    Unset,
    NotOlderThan,
    Exact,
}

/// The parameters of a GET of one object, which ignores those of lists.
const GET_PARAMETERS: [&str; 4] = ["includeObject", "pretty", "resourceVersion", "timeout"];

/// The further parameters of a list or a watch.
const LIST_PARAMETERS: [&str; 10] = [
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

/// The parameter that most refused combinations name.
const MATCH: &str = "resourceVersionMatch";

impl ListOptions {
    /// Parses the parameters. Returns `None` if one of them is unknown, so that the API server must answer.
    ///
    /// # Errors
    ///
    /// 400 for a number that is none or a selector that is none, 422 for a combination that the API server refuses.
    ///
    /// The order of the checks and the messages are the API server's: `listOpts` in apiserver
    /// `pkg/endpoints/handlers/get.go` decodes the parameters, then sets defaults, then validates.
    pub(crate) fn parse(verb: ReadVerb, query: &QueryPairs) -> Result<Option<Self>, Refusal> {
        let is_known =
            |name: &str| GET_PARAMETERS.contains(&name) || verb != ReadVerb::Get && LIST_PARAMETERS.contains(&name);
        if !query.names().all(is_known) {
            return Ok(None);
        }
        // The API server refuses a timeout that it cannot parse, but it ignores the timeout of a watch.
        if verb != ReadVerb::Watch && !is_duration(query.first_value("timeout").unwrap_or_default()) {
            return Ok(None);
        }
        let mut options = Self::decode(query)?;
        let mut match_text = query.first_value(MATCH).unwrap_or_default();
        if verb == ReadVerb::Watch {
            options.set_watch_defaults(&mut match_text);
        }
        options.resource_version_match = match match_text {
            "NotOlderThan" => ResourceVersionMatch::NotOlderThan,
            "Exact" => ResourceVersionMatch::Exact,
            _ => ResourceVersionMatch::Unset,
        };
        let causes = match verb {
            ReadVerb::Get => Vec::new(),
            ReadVerb::List => options.validate_list(match_text),
            ReadVerb::Watch => options.validate_watch(match_text),
        };
        if !causes.is_empty() {
            return Err(status::invalid_list_options(causes).into());
        }
        Ok(Some(options))
    }

    /// Decodes the parameters, without `resourceVersionMatch`. Numbers are decoded first, as by the API server.
    fn decode(query: &QueryPairs) -> Result<Self, Refusal> {
        let text = |name| query.first_value(name).unwrap_or_default().to_owned();
        let timeout_seconds = parse_number(query, "timeoutSeconds")?;
        let limit = parse_number(query, "limit")?.unwrap_or_default();
        Ok(Self {
            labels: text("labelSelector").parse().map_err(|error| refuse_selector(&error))?,
            fields: text("fieldSelector").parse().map_err(|error| refuse_selector(&error))?,
            field_selector: text("fieldSelector"),
            limit,
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            resource_version_match: ResourceVersionMatch::Unset,
            allow_watch_bookmarks: query.parse_flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: query.parse_flag("sendInitialEvents"),
            timeout_seconds,
            pretty: query.parse_flag("pretty").unwrap_or_default(),
            shard_selector: text("shardSelector"),
            include_object: match query.first_value("includeObject").unwrap_or_default() {
                "" | "Metadata" => IncludeObject::Metadata,
                "Object" => IncludeObject::Object,
                "None" => IncludeObject::None,
                _ => IncludeObject::Invalid,
            },
        })
    }

    /// `SetListOptionsDefaults` of apimachinery: a watch without a version begins with the objects of the collection.
    fn set_watch_defaults(&mut self, match_text: &mut &str) {
        let is_versioned = !matches!(&*self.resource_version, "" | "0");
        if !is_versioned && self.send_initial_events.is_none() && match_text.is_empty() {
            self.send_initial_events = Some(true);
            *match_text = "NotOlderThan";
        }
    }

    /// `ValidateListOptions` of apimachinery.
    fn validate_list(&self, match_text: &str) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if !match_text.is_empty() {
            if self.resource_version.is_empty() {
                causes.push(forbidden_cause(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                causes.push(forbidden_cause(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if self.resource_version_match == ResourceVersionMatch::Unset {
                causes.push(unsupported_cause(MATCH, match_text, r#""Exact", "NotOlderThan", """#));
            }
            if self.resource_version_match == ResourceVersionMatch::Exact && self.resource_version == "0" {
                causes.push(forbidden_cause(
                    MATCH,
                    r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
                ));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(forbidden_cause("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        causes
    }

    /// `validateWatchOptions` of apimachinery, with the feature gate `WatchList`.
    fn validate_watch(&self, match_text: &str) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let is_not_older_than = self.resource_version_match == ResourceVersionMatch::NotOlderThan;
        if self.send_initial_events.is_some() && !is_not_older_than {
            causes.push(forbidden_cause(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !match_text.is_empty() {
            if self.send_initial_events.is_none() {
                causes.push(forbidden_cause(
                    MATCH,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if !is_not_older_than {
                causes.push(unsupported_cause(MATCH, match_text, r#""NotOlderThan""#));
            }
            if !self.continue_token.is_empty() {
                causes.push(forbidden_cause(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        causes
    }
}

fn parse_number(query: &QueryPairs, name: &str) -> Result<Option<i64>, Refusal> {
    let parse = |value| parse_int(value).map_err(|error| status::bad_request(error).into());
    query.first_value(name).map(parse).transpose()
}

fn refuse_selector(error: &InvalidInput) -> Refusal {
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

/// Returns the name if the field selector has the term `metadata.name=NAME`. The API server authorizes such a list or
/// watch for the name.
pub(super) fn selected_name(selector: &str) -> Option<String> {
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

fn forbidden_cause(field: &str, message: &str) -> StatusCause {
    status::cause("FieldValueForbidden", format!("Forbidden: {message}"), field)
}

fn unsupported_cause(field: &str, value: &str, supported: &str) -> StatusCause {
    let message = format!("Unsupported value: {value:?}: supported values: {supported}");
    status::cause("FieldValueNotSupported", message, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(verb: ReadVerb, query: &str) -> Result<Option<ListOptions>, Refusal> {
        ListOptions::parse(verb, &QueryPairs::parse(query)?)
    }

    /// Returns the code and the message of the error.
    fn refused(verb: ReadVerb, query: &str) -> (i32, String) {
        let Err(Refusal::Status(status)) = parsed(verb, query) else { panic!("{query}") };
        (status.code, status.message)
    }

    #[test]
    fn reads_all_parameters_of_a_list() {
        let query = "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=%2B5&resourceVersion=7\
            &resourceVersionMatch=Exact&timeoutSeconds=-1&pretty=true&shardSelector=s&includeObject=None";
        let expected = ListOptions {
            labels: LabelSelector::new().equal("a", "b"),
            fields: FieldSelector::new().equal("metadata.name", "x"),
            field_selector: "metadata.name=x".to_owned(),
            limit: 5,
            resource_version: "7".to_owned(),
            resource_version_match: ResourceVersionMatch::Exact,
            timeout_seconds: Some(-1),
            pretty: true,
            shard_selector: "s".to_owned(),
            include_object: IncludeObject::None,
            ..ListOptions::default()
        };
        assert_eq!(parsed(ReadVerb::List, query), Ok(Some(expected)));
    }

    #[test]
    fn only_0_and_false_are_false() {
        let send = |query: &str| parsed(ReadVerb::Watch, query).unwrap().unwrap().allow_watch_bookmarks;
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
        assert_eq!(parsed(ReadVerb::List, "limit=1&new=1"), Ok(None));
        assert_eq!(parsed(ReadVerb::List, "Limit=1"), Ok(None));
        assert_eq!(parsed(ReadVerb::Get, "limit=1"), Ok(None));
        assert_eq!(parsed(ReadVerb::Get, "labelSelector=-a"), Ok(None));
        assert!(parsed(ReadVerb::Get, "resourceVersion=0&pretty=1").unwrap().is_some());
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
            for verb in [ReadVerb::Get, ReadVerb::List] {
                assert_eq!(parsed(verb, &format!("timeout={timeout}")).unwrap().is_some(), is_one, "{timeout}");
            }
            assert!(parsed(ReadVerb::Watch, &format!("timeout={timeout}")).unwrap().is_some(), "{timeout}");
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
            let params = parsed(ReadVerb::Watch, query).unwrap().unwrap();
            assert_eq!(params.send_initial_events, expected, "{query}");
        }
        assert_eq!(parsed(ReadVerb::List, "").unwrap().unwrap().send_initial_events, None);
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
        for verb in [ReadVerb::List, ReadVerb::Watch] {
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
                assert_eq!(refused(verb, query), (400, message), "{query}");
            }
        }
    }

    #[test]
    fn refuses_what_the_api_server_refuses() {
        let invalid = |message: &str| (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"));
        for (verb, query, expected) in [
            (ReadVerb::List, "limit=x", (400, r#"strconv.ParseInt: parsing "x": invalid syntax"#.to_owned())),
            (ReadVerb::List, "limit=", (400, r#"strconv.ParseInt: parsing "": invalid syntax"#.to_owned())),
            (
                ReadVerb::Watch,
                "timeoutSeconds=9223372036854775808",
                (400, r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#.to_owned()),
            ),
            (
                ReadVerb::List,
                "resourceVersionMatch=Exact",
                invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ),
            ),
            (
                ReadVerb::List,
                "resourceVersionMatch=Exact&resourceVersion=0",
                invalid(
                    r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
                ),
            ),
            (
                ReadVerb::List,
                "resourceVersionMatch=Newer&resourceVersion=1&sendInitialEvents=0",
                invalid(
                    r#"[resourceVersionMatch: Unsupported value: "Newer": supported values: "Exact", "NotOlderThan", "", sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]"#,
                ),
            ),
            (
                ReadVerb::Watch,
                "resourceVersionMatch=NotOlderThan",
                invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
            ),
            (
                ReadVerb::Watch,
                "continue=x",
                invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"),
            ),
            (
                ReadVerb::Watch,
                "sendInitialEvents=1",
                invalid(
                    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
            ),
        ] {
            assert_eq!(refused(verb, query), expected, "{query}");
        }
        assert!(
            parsed(ReadVerb::Watch, "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=").is_ok()
        );
        // Storage refuses it, after it has decoded the token.
        assert!(parsed(ReadVerb::List, "continue=x&resourceVersion=5").is_ok());
    }
}
