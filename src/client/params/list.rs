//! [`ListParams`]: the parameters of a list.

use std::time::Duration;

use super::query::{ResourceVersion, check_exact, check_timeout, check_version};
use super::selection::Selection;
use crate::error::InvalidInput;

/// The parameters of a list: which objects, how new they must be, and the size of pages.
///
/// The default is the whole collection in one response, at the most recent version.
///
/// ```
/// use listwatch::client::{ListParams, ResourceVersion, Selection};
///
/// let web = Selection::default().labels("app=web".parse()?);
/// let params = ListParams::new(web).resource_version(ResourceVersion::Any);
/// let paged = ListParams::default().page_size(500);
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListParams {
    pub(in crate::client) selection: Selection,
    pub(in crate::client) resource_version: ResourceVersion,
    pub(in crate::client) page_size: Option<u32>,
    pub(in crate::client) timeout: Option<Duration>,
}

impl ListParams {
    /// Lists these objects in one response, at the most recent version.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Sets how new the list must be. The default is [`ResourceVersion::MostRecent`].
    #[must_use]
    pub fn resource_version(mut self, version: ResourceVersion) -> Self {
        self.resource_version = version;
        self
    }

    /// Requests the list in pages of this many items, one after the other. By default, it is one response.
    ///
    /// All pages of an API server are of one version. With [`ResourceVersion::Any`], servers ignore the page size and
    /// send the whole collection. If a server or a proxy sends pages although nobody requested them, the client follows
    /// them too.
    #[must_use]
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// Sets after which time the server ends a response, including the time that the client takes to read it.
    ///
    /// The time must be in whole seconds, and the server limits it to its own `--request-timeout`, 60 s by default. The
    /// client sends `timeout`, which applies to lists (apiserver `filters/request_deadline.go`), as well as
    /// `timeoutSeconds`, which is documented but applies only to watches.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses parameters that the server would answer with 400 or 422, or would interpret differently.
    ///
    /// The server's rules are in apimachinery `internalversion/validation.ValidateListOptions` and apiserver
    /// `storage.ValidateListOptions`.
    pub(in crate::client) fn validate(&self) -> Result<(), InvalidInput> {
        self.selection.validate()?;
        match &self.resource_version {
            ResourceVersion::Exact(version) => check_exact(version)?,
            ResourceVersion::AtLeast(version) => check_version(version)?,
            ResourceVersion::MostRecent | ResourceVersion::Any => {}
        }
        if self.page_size == Some(0) {
            // The server would send all items.
            return Err(InvalidInput::new("page size 0: it must be at least 1", ""));
        }
        check_timeout(self.timeout)
    }

    /// Returns the query string of the first page, or of the page that a continue token names. A token contains the
    /// version, so the server refuses a version next to a token.
    pub(in crate::client) fn query(&self, continue_token: Option<&str>) -> String {
        let mut query = self.selection.query();
        if let Some(items) = self.page_size {
            query.add("limit", &items.to_string());
        }
        match (continue_token, &self.resource_version) {
            (Some(token), _) => query.add("continue", token),
            (None, ResourceVersion::MostRecent) => {}
            (None, ResourceVersion::Any) => query.add("resourceVersion", "0"),
            (None, ResourceVersion::AtLeast(version)) => {
                query.add("resourceVersion", version);
                query.add("resourceVersionMatch", "NotOlderThan");
            }
            (None, ResourceVersion::Exact(version)) => {
                query.add("resourceVersion", version);
                query.add("resourceVersionMatch", "Exact");
            }
        }
        if let Some(timeout) = self.timeout {
            query.add("timeout", &format!("{}s", timeout.as_secs()));
            query.add("timeoutSeconds", &timeout.as_secs().to_string());
        }
        query.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::query::MAX_TIMEOUT_SECONDS;
    use super::*;
    use crate::object::shard::Shard;
    use crate::object::{FieldSelector, LabelSelector};

    fn exact(text: &str) -> ResourceVersion {
        ResourceVersion::Exact(text.to_owned())
    }

    fn at_least(text: &str) -> ResourceVersion {
        ResourceVersion::AtLeast(text.to_owned())
    }

    #[test]
    fn list_queries_have_the_servers_parameters() {
        let params = ListParams::default;
        let version = |version| params().resource_version(version);
        let labels: LabelSelector = "tier in (a,b),!c".parse().unwrap();
        let fields: FieldSelector = r"metadata.name=a\,b&c".parse().unwrap();
        let selected = |selection: Selection| ListParams::new(selection);
        for (params, token, expected) in [
            (params(), None, ""),
            (selected(Selection::all().labels(labels)), None, "labelSelector=%21c%2Ctier%20in%20%28a%2Cb%29"),
            (selected(Selection::all().fields(fields)), None, "fieldSelector=metadata.name%3Da%5C%2Cb%26c"),
            (params().page_size(500), None, "limit=500"),
            (params(), Some("eyJ2_-"), "continue=eyJ2_-"),
            (params(), Some("a+b/c=d&"), "continue=a%2Bb%2Fc%3Dd%26"),
            (version(ResourceVersion::MostRecent), None, ""),
            (version(ResourceVersion::Any), None, "resourceVersion=0"),
            (version(at_least("7")), None, "resourceVersion=7&resourceVersionMatch=NotOlderThan"),
            (version(exact("7")), None, "resourceVersion=7&resourceVersionMatch=Exact"),
            (params().timeout(Duration::from_secs(30)), None, "timeout=30s&timeoutSeconds=30"),
            (selected(Selection::all().metadata_only().json()), None, ""),
            (
                selected(Selection::all().shard(Shard::new(1, 2).unwrap())),
                None,
                "shardSelector=shardRange%28object.metadata.uid%2C%20%270x8000000000000000%27%2C%20\
                 %270x10000000000000000%27%29",
            ),
            (
                selected(Selection::all().fields("a=b".parse().unwrap()).labels("c".parse().unwrap()))
                    .resource_version(exact("9"))
                    .timeout(Duration::from_secs(1))
                    .page_size(2),
                None,
                "labelSelector=c&fieldSelector=a%3Db&limit=2&resourceVersion=9&resourceVersionMatch=Exact\
                 &timeout=1s&timeoutSeconds=1",
            ),
            // A version is never sent with a token.
            (version(ResourceVersion::Any), Some("t"), "continue=t"),
            (version(exact("9")).page_size(2), Some("t"), "limit=2&continue=t"),
            (version(at_least("9")), Some("u"), "continue=u"),
        ] {
            assert_eq!(params.query(token), expected);
        }
    }

    #[test]
    fn refuses_what_the_server_refuses() {
        let seconds = Duration::from_secs;
        let params = ListParams::default;
        let version = |version| params().resource_version(version);
        for (params, expected) in [
            (
                version(exact("0")),
                r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ),
            (
                version(exact("00")),
                r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ),
            (version(exact("")), r#"invalid resource version "": it must not be empty"#),
            (version(at_least("")), r#"invalid resource version "": it must not be empty"#),
            (params().page_size(0), "page size 0: it must be at least 1"),
            (params().timeout(seconds(0)), "timeout 0ns: it must be whole seconds, from 1 to 9223372036"),
            (
                params().timeout(Duration::from_millis(1500)),
                "timeout 1.5s: it must be whole seconds, from 1 to 9223372036",
            ),
            (
                params().timeout(seconds(MAX_TIMEOUT_SECONDS + 1)),
                "timeout 9223372037s: it must be whole seconds, from 1 to 9223372036",
            ),
        ] {
            assert_eq!(params.validate().map_err(|error| error.to_string()), Err(expected.to_owned()), "{params:?}");
        }
        for params in [
            params(),
            version(ResourceVersion::Any).page_size(1),
            version(at_least("0")),
            version(at_least("7")).page_size(1),
            // Versions may exceed u64, and may be any text.
            version(exact("99999999999999999999999")),
            version(exact("opaque-1")),
            version(at_least("-1")),
            params().timeout(seconds(1)),
            params().timeout(seconds(MAX_TIMEOUT_SECONDS)),
        ] {
            assert_eq!(params.validate(), Ok(()), "{params:?}");
        }
    }
}
