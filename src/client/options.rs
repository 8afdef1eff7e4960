//! What to ask of a list or a watch, checked before it is sent.

use std::fmt::{self, Write};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use super::resource::encode;
use super::selector::{FieldSelector, LabelSelector};
#[cfg(feature = "cache")]
use crate::error::ItemError;
#[cfg(feature = "cache")]
use crate::object::ItemRef;

/// The parameters of a list or a watch, which are one type in Kubernetes too (`metav1.ListOptions`).
///
/// Of a watch, [`timeout`](Self::timeout) is how long the server keeps it open, and the version is where it begins: see
/// [`Client::watch`](super::Client::watch). There is no limit and no continue token.
///
/// The default asks for everything, whole, at the most recent version. Nothing set here is left out of the request
/// silently: [`ListOptions::validate`] refuses what the server would refuse, [`ListOptions::warnings`] names what
/// it would ignore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListOptions {
    pub(super) label_selector: LabelSelector,
    pub(super) field_selector: FieldSelector,
    pub(super) limit: Option<u32>,
    pub(super) continue_token: Option<String>,
    pub(super) resource_version: ResourceVersion,
    pub(super) timeout: Option<Duration>,
    pub(super) metadata_only: bool,
    pub(super) drop_managed_fields: bool,
    pub(super) json: bool,
    pub(super) shard: Option<Shard>,
}

impl ListOptions {
    /// Only objects with these labels.
    #[must_use]
    pub fn labels(mut self, selector: LabelSelector) -> Self {
        self.label_selector = selector;
        self
    }

    /// Only objects with these fields.
    #[must_use]
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.field_selector = selector;
        self
    }

    /// At most this many items in the response; it then carries a continue token for the rest.
    #[must_use]
    pub fn limit(mut self, items: u32) -> Self {
        self.limit = Some(items);
        self
    }

    /// Goes on where an earlier response ended. Every other option but the version must be as it was then; see
    /// [`ListOptions::next_page`].
    #[must_use]
    pub fn continue_token(mut self, token: impl Into<String>) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// How new the list must be.
    #[must_use]
    pub fn resource_version(mut self, version: ResourceVersion) -> Self {
        self.resource_version = version;
        self
    }

    /// After how many seconds the server gives up, the writing of the body included. It must be whole seconds.
    ///
    /// A server cuts it to its own `--request-timeout`, by default 60 s. Sent as `timeout`, which a list obeys
    /// (apiserver `filters/request_deadline.go`), and as `timeoutSeconds`, which is the documented name but counts for
    /// watches only; client-go sends both.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Of a watch, for a list: its timeout would be the time that the body may take.
    pub(crate) fn without_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// Only the metadata of each object: the items are `PartialObjectMetadata`, in protobuf for custom resources too.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Asks the server to leave out `metadata.managedFields`, up to 60 % of an object (KEP-5958, alpha). Servers
    /// without it send them all the same.
    #[must_use]
    pub fn drop_managed_fields(mut self) -> Self {
        self.drop_managed_fields = true;
        self
    }

    /// Asks for JSON also where the server has protobuf, which is smaller and faster. A list of [`Json`](crate::Json) does
    /// so by itself.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Only the objects of one shard (KEP-5866, alpha in 1.36). Servers without it send everything: the rest is then left
    /// out here, and counted in [`ListSummary::other_shards`](super::ListSummary::other_shards). Of a watch no server says
    /// whether it complied, so that is always checked here.
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// The same request for the page after the one that ended with `token`. The version is not asked for again: the
    /// token holds it, and the server refuses both together.
    #[must_use]
    pub fn next_page(&self, token: impl Into<String>) -> Self {
        self.clone().continue_token(token).resource_version(ResourceVersion::MostRecent)
    }

    /// Refuses what the server answers with 400 or 422, and values that would not mean what they say.
    ///
    /// The server's rules are in apimachinery `internalversion/validation.ValidateListOptions` and apiserver
    /// `storage.ValidateListOptions`.
    ///
    /// # Errors
    ///
    /// The first [`InvalidOptions`] found.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        if let ResourceVersion::AtLeast(version) | ResourceVersion::Exact(version) = &self.resource_version {
            if self.continue_token.is_some() {
                return Err(InvalidOptions::ContinueWithVersion);
            }
            if version.is_empty() || !version.bytes().all(|b| b.is_ascii_digit()) {
                return Err(InvalidOptions::Version(version.clone()));
            }
        }
        if matches!(&self.resource_version, ResourceVersion::Exact(version) if is_zero(version)) {
            return Err(InvalidOptions::ExactZero);
        }
        if self.continue_token.as_deref() == Some("") {
            return Err(InvalidOptions::EmptyContinue);
        }
        if self.limit == Some(0) {
            return Err(InvalidOptions::ZeroLimit);
        }
        match self.timeout {
            Some(timeout) if timeout.subsec_nanos() != 0 || !(1..=MAX_TIMEOUT_SECONDS).contains(&timeout.as_secs()) => {
                Err(InvalidOptions::Timeout(timeout))
            }
            _ => Ok(()),
        }
    }

    /// What a server will ignore, or may.
    #[must_use]
    pub fn warnings(&self) -> Vec<OptionWarning> {
        let mut warnings = Vec::new();
        if self.is_any() && self.continue_token.is_some() {
            warnings.push(OptionWarning::VersionIgnored);
        } else if let (true, Some(limit)) = (self.is_any(), self.limit) {
            warnings.push(OptionWarning::LimitIgnored { limit });
        }
        match self.timeout {
            Some(timeout) if timeout > DEFAULT_REQUEST_TIMEOUT => {
                warnings.push(OptionWarning::TimeoutCut { timeout });
            }
            _ => {}
        }
        if self.drop_managed_fields {
            warnings.push(OptionWarning::DropUnsure);
        }
        warnings
    }

    /// Whether the server would send the object, whole as it is here.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when that cannot be told.
    #[cfg(feature = "cache")]
    pub(crate) fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let meta = item.meta()?;
        Ok(self.label_selector.matches(&meta)?
            && self.field_selector.matches(item)?
            && self.shard.is_none_or(|shard| shard.contains(&meta.uid())))
    }

    #[cfg(feature = "cache")]
    pub(crate) fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    #[cfg(feature = "cache")]
    pub(crate) fn drops_managed_fields(&self) -> bool {
        self.drop_managed_fields
    }

    /// The query string, without `?`: percent-encoded, always in the same order, empty for the default.
    ///
    /// With a continue token no version is sent. Of options that [`ListOptions::validate`] refuses, the server would
    /// refuse the query.
    #[must_use]
    pub fn query(&self) -> String {
        let mut query = self.selectors();
        if let Some(limit) = self.limit {
            query.add("limit", &limit.to_string());
        }
        match (&self.continue_token, &self.resource_version) {
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

    /// The query string of a watch.
    pub(super) fn watch_query(&self, initial_events: bool, bookmarks: bool, timeout: Duration) -> String {
        let mut query = self.selectors();
        query.add("watch", "1");
        if bookmarks {
            query.add("allowWatchBookmarks", "true");
        }
        let version = match &self.resource_version {
            ResourceVersion::MostRecent => "",
            ResourceVersion::Any => "0",
            ResourceVersion::AtLeast(version) | ResourceVersion::Exact(version) => version,
        };
        if initial_events {
            query.add("sendInitialEvents", "true");
            query.add("resourceVersionMatch", "NotOlderThan");
        }
        query.add("resourceVersion", version);
        query.add("timeoutSeconds", &timeout.as_secs().to_string());
        query.0
    }

    fn selectors(&self) -> Query {
        let mut query = Query::default();
        if !self.label_selector.is_empty() {
            query.add("labelSelector", &self.label_selector.to_string());
        }
        if !self.field_selector.is_empty() {
            query.add("fieldSelector", &self.field_selector.to_string());
        }
        if let Some(shard) = self.shard {
            query.add("shardSelector", &shard.selector());
        }
        query
    }

    /// Refuses what makes no sense in a watch, and what [`validate`](Self::validate) refuses.
    pub(crate) fn validate_watch(&self, initial_events: bool) -> Result<(), InvalidOptions> {
        self.validate()?;
        match &self.resource_version {
            _ if self.limit.is_some() || self.continue_token.is_some() => Err(InvalidOptions::PageOfWatch),
            ResourceVersion::AtLeast(_) if !initial_events => Err(InvalidOptions::WatchAtLeast),
            ResourceVersion::Exact(_) if initial_events => Err(InvalidOptions::ExactInitialEvents),
            _ => Ok(()),
        }
    }

    /// The `Accept` header: protobuf if the server can, which it cannot for whole custom resources, else JSON.
    ///
    /// Metadata only is never widened to whole objects: a server that cannot answers 406.
    #[must_use]
    pub fn accept(&self) -> String {
        self.accept_as("PartialObjectMetadataList")
    }

    /// The `Accept` header of a watch, whose objects come one by one.
    pub(super) fn watch_accept(&self) -> String {
        self.accept_as("PartialObjectMetadata")
    }

    fn accept_as(&self, metadata_kind: &str) -> String {
        let form = if self.metadata_only { format!(";as={metadata_kind};g=meta.k8s.io;v=v1") } else { String::new() };
        let drop = if self.drop_managed_fields { ";drop=metadata.managedFields" } else { "" };
        let json = format!("application/json{form}{drop}");
        if self.json { json } else { format!("application/vnd.kubernetes.protobuf{form}{drop},{json}") }
    }

    /// Whether the watch cache may answer as it is: the server reads "at least 0" like "any".
    pub(super) fn is_any(&self) -> bool {
        match &self.resource_version {
            ResourceVersion::Any => true,
            ResourceVersion::AtLeast(version) => version == "0",
            ResourceVersion::MostRecent | ResourceVersion::Exact(_) => false,
        }
    }
}

/// A query string in the making.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, key: &str, value: &str) {
        let and = if self.0.is_empty() { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{and}{key}={}", encode(value));
    }
}

/// Go's `time.Duration`, as which the server reads a timeout, holds no more.
const MAX_TIMEOUT_SECONDS: u64 = 9_223_372_036;

/// kube-apiserver `--request-timeout`.
pub(super) const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Of 0 the server makes "no version".
fn is_zero(version: &str) -> bool {
    version.bytes().all(|b| b == b'0')
}

/// How new a list must be. [`served_from`](super::served_from::served_from) tells who answers then.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum ResourceVersion {
    /// Everything that was written before the request: `resourceVersion` is left out.
    ///
    /// The default, because any other list may lack what its caller has just written. Servers since 1.31 answer from
    /// the watch cache once it has caught up (KEP-2340). Older ones read the whole collection from etcd, which costs
    /// etcd and the server time and memory at every list: consider [`ResourceVersion::Any`] there.
    #[default]
    MostRecent,
    /// What the watch cache holds, of any age: `resourceVersion=0`. The cheapest, but it goes back in time between
    /// servers, and limits are ignored.
    Any,
    /// This version or a newer one: `resourceVersionMatch=NotOlderThan`. A version the server has not seen within 3 s
    /// is answered with 504 and cause `ResourceVersionTooLarge`.
    AtLeast(String),
    /// Exactly this version: `resourceVersionMatch=Exact`. One that etcd has compacted is answered with 410.
    Exact(String),
}

/// Options that the server would refuse, or that would not mean what they say: nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The server answers 422 or 400.
    #[error(
        "a resource version beside a continue token: specifying resource version is not allowed when using continue \
         (the token holds it)"
    )]
    ContinueWithVersion,
    /// The server would answer with the first page again.
    #[error("an empty continue token: there is no next page")]
    EmptyContinue,
    /// See [`List::parallel`](super::List::parallel).
    #[error("a list that starts over, in parallel: items of the snapshot that is given up would still come")]
    StartOverInParallel,
    /// A watch has no pages.
    #[error("a limit or a continue token in a watch: only lists have pages")]
    PageOfWatch,
    /// The server would take it for an exact version.
    #[error("a watch from at least a version: without initial events it begins right behind an exact one")]
    WatchAtLeast,
    /// The server answers 422.
    #[error("initial events at an exact version: the server has them of a version that is not older than that, or any")]
    ExactInitialEvents,
    /// The server answers 422.
    #[error("exact version 0: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")]
    ExactZero,
    /// The server answers 400 or 422.
    #[error("invalid resource version {0:?}: it must be digits, as a server gave it")]
    Version(String),
    /// The server would take it for no limit.
    #[error("limit 0: the server takes it for no limit; set none instead")]
    ZeroLimit,
    /// Of no time at all the server makes its own timeout, of too much 400, and there are no parts of seconds.
    #[error("timeout {0:?}: it must be whole seconds, from 1 to {MAX_TIMEOUT_SECONDS}")]
    Timeout(Duration),
}

/// An option that a server ignores, or may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionWarning {
    /// The whole collection comes in one response.
    LimitIgnored {
        /// The limit that was asked for.
        limit: u32,
    },
    /// [`ResourceVersion::Any`] is not sent beside a continue token, which holds the version.
    VersionIgnored,
    /// The server's own timeout is probably shorter.
    TimeoutCut {
        /// The timeout that was asked for.
        timeout: Duration,
    },
    /// Only servers with an alpha feature leave managedFields out.
    DropUnsure,
}

impl fmt::Display for OptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitIgnored { limit } => {
                write!(f, "limit {limit} is ignored with resource version 0: the server sends the whole collection")
            }
            Self::VersionIgnored => {
                f.write_str("resource version 0 is ignored with a continue token, which holds its own")
            }
            Self::TimeoutCut { timeout } => write!(
                f,
                "timeout {timeout:?} is cut to the server's own --request-timeout, {DEFAULT_REQUEST_TIMEOUT:?} by default"
            ),
            Self::DropUnsure => {
                f.write_str("managedFields are left out only by servers with KEP-5958, an alpha feature")
            }
        }
    }
}

/// One of `of` equal parts of a collection, by a hash (FNV-1a, 64 bits) of each object's uid (KEP-5866).
///
/// Lists, watches and, with the feature `cache`, reflectors [take one](ListOptions::shard). An object stays in its shard for
/// as long as it is there; one that is deleted and created again has another uid, and may be in another. The example `shards`
/// has replicas agree on who has which shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    // index < of
    index: u32,
    of: u32,
}

impl Shard {
    /// Shard `index`, counted from 0, of `of`.
    ///
    /// # Errors
    ///
    /// An index that is not below `of`.
    pub fn new(index: u32, of: u32) -> Result<Self, InvalidShard> {
        if index < of { Ok(Self { index, of }) } else { Err(InvalidShard(format!("{index}/{of}"))) }
    }

    /// The hashes in this shard. The ranges of all `of` shards share 2^64 hashes out without gap or overlap.
    #[must_use]
    pub fn hashes(self) -> Range<u128> {
        let bound = |index: u128| (index << 64) / u128::from(self.of);
        let index = u128::from(self.index);
        bound(index)..bound(index + 1)
    }

    /// The `shardSelector` parameter, written as servers echo it.
    #[must_use]
    pub fn selector(self) -> String {
        let Range { start, end } = self.hashes();
        format!("shardRange(object.metadata.uid, '0x{start:016x}', '0x{end:016x}')")
    }

    /// Whether an object of this uid is in the shard, for lists of servers that sent everything.
    #[must_use]
    pub fn contains(self, uid: &str) -> bool {
        self.hashes().contains(&u128::from(fnv_1a(uid.as_bytes())))
    }

    /// Whether the list holds this shard only, by the selector that the server echoed in `ListMeta.shardInfo`. Servers
    /// that do not know shards echo none, and send everything.
    #[must_use]
    pub fn complied(self, echoed_selector: Option<&str>) -> bool {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        echoed_selector.is_some_and(|echoed| bare(echoed) == bare(&self.selector()))
    }
}

/// <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// `index/of`, as it is parsed.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = InvalidShard;

    fn from_str(text: &str) -> Result<Self, InvalidShard> {
        let invalid = || InvalidShard(text.to_owned());
        let (index, of) = text.split_once('/').ok_or_else(invalid)?;
        let number = |text: &str| text.parse().map_err(|_| invalid());
        Self::new(number(index)?, number(of)?)
    }
}

/// Not a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no shard: write I/N, I counted from 0 and below N, as in 0/3, 1/3, 2/3")]
pub struct InvalidShard(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ListOptions {
        ListOptions::default()
    }

    fn version(version: ResourceVersion) -> ListOptions {
        options().resource_version(version)
    }

    fn at_least(text: &str) -> ResourceVersion {
        ResourceVersion::AtLeast(text.to_owned())
    }

    fn exact(text: &str) -> ResourceVersion {
        ResourceVersion::Exact(text.to_owned())
    }

    #[test]
    fn queries() {
        let labels: LabelSelector = "tier in (a,b),!c".parse().unwrap();
        let fields: FieldSelector = r"metadata.name=a\,b&c".parse().unwrap();
        for (options, expected) in [
            (options(), ""),
            (options().labels(labels.clone()), "labelSelector=%21c%2Ctier%20in%20%28a%2Cb%29"),
            (options().fields(fields.clone()), "fieldSelector=metadata.name%3Da%5C%2Cb%26c"),
            (options().limit(500), "limit=500"),
            (options().continue_token("eyJ2_-"), "continue=eyJ2_-"),
            (options().continue_token("a+b/c=d&"), "continue=a%2Bb%2Fc%3Dd%26"),
            (version(ResourceVersion::MostRecent), ""),
            (version(ResourceVersion::Any), "resourceVersion=0"),
            (version(at_least("7")), "resourceVersion=7&resourceVersionMatch=NotOlderThan"),
            (version(exact("7")), "resourceVersion=7&resourceVersionMatch=Exact"),
            (options().timeout(Duration::from_secs(30)), "timeout=30s&timeoutSeconds=30"),
            (options().metadata_only().drop_managed_fields(), ""),
            (
                options().shard(Shard::new(1, 2).unwrap()),
                "shardSelector=shardRange%28object.metadata.uid%2C%20%270x8000000000000000%27%2C%20\
                 %270x10000000000000000%27%29",
            ),
            (
                version(exact("9"))
                    .timeout(Duration::from_secs(1))
                    .limit(2)
                    .fields("a=b".parse().unwrap())
                    .labels("c".parse().unwrap()),
                "labelSelector=c&fieldSelector=a%3Db&limit=2&resourceVersion=9&resourceVersionMatch=Exact\
                 &timeout=1s&timeoutSeconds=1",
            ),
            // A version is never sent beside a token.
            (version(ResourceVersion::Any).continue_token("t"), "continue=t"),
            (version(exact("9")).limit(2).next_page("t"), "limit=2&continue=t"),
            (version(at_least("9")).next_page("t").next_page("u"), "continue=u"),
        ] {
            assert_eq!(options.query(), expected);
        }
    }

    #[test]
    fn refused_combinations() {
        let seconds = Duration::from_secs;
        let token = || options().continue_token("t");
        for (options, expected) in [
            (token().resource_version(at_least("7")), InvalidOptions::ContinueWithVersion),
            (token().resource_version(at_least("0")), InvalidOptions::ContinueWithVersion),
            (token().resource_version(exact("7")), InvalidOptions::ContinueWithVersion),
            (options().continue_token(""), InvalidOptions::EmptyContinue),
            (version(exact("0")), InvalidOptions::ExactZero),
            (version(exact("00")), InvalidOptions::ExactZero),
            (version(exact("")), InvalidOptions::Version(String::new())),
            (version(at_least("")), InvalidOptions::Version(String::new())),
            (version(at_least("x1")), InvalidOptions::Version("x1".into())),
            (version(at_least("-1")), InvalidOptions::Version("-1".into())),
            (version(exact("+1")), InvalidOptions::Version("+1".into())),
            (options().limit(0), InvalidOptions::ZeroLimit),
            (options().timeout(seconds(0)), InvalidOptions::Timeout(seconds(0))),
            (options().timeout(Duration::from_millis(1500)), InvalidOptions::Timeout(Duration::from_millis(1500))),
            (
                options().timeout(seconds(MAX_TIMEOUT_SECONDS + 1)),
                InvalidOptions::Timeout(seconds(MAX_TIMEOUT_SECONDS + 1)),
            ),
        ] {
            assert_eq!(options.validate(), Err(expected), "{options:?}");
        }
        for options in [
            options(),
            token(),
            token().resource_version(ResourceVersion::Any),
            token().limit(1),
            version(ResourceVersion::Any).limit(1),
            version(at_least("0")),
            version(at_least("7")).limit(1),
            // Versions may exceed u64.
            version(exact("99999999999999999999999")),
            options().timeout(seconds(1)),
            options().timeout(seconds(MAX_TIMEOUT_SECONDS)),
            version(exact("7")).next_page("t"),
        ] {
            assert_eq!(options.validate(), Ok(()), "{options:?}");
        }
    }

    #[test]
    fn refusals_give_the_servers_reasons() {
        for (error, reason) in [
            (InvalidOptions::ContinueWithVersion, "specifying resource version is not allowed when using continue"),
            (InvalidOptions::ExactZero, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
            (InvalidOptions::Version("x".into()), "invalid resource version \"x\""),
            (InvalidOptions::Timeout(Duration::ZERO), "timeout 0ns: it must be whole seconds"),
        ] {
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn ignored_options() {
        let minute = Duration::from_secs(60);
        let hour = Duration::from_secs(3600);
        for (options, expected) in [
            (options(), vec![]),
            (options().limit(5), vec![]),
            (version(ResourceVersion::Any), vec![]),
            (version(at_least("7")).limit(5), vec![]),
            (version(exact("7")).limit(5), vec![]),
            (version(ResourceVersion::Any).limit(5), vec![OptionWarning::LimitIgnored { limit: 5 }]),
            (version(at_least("0")).limit(5), vec![OptionWarning::LimitIgnored { limit: 5 }]),
            (version(ResourceVersion::Any).limit(5).continue_token("t"), vec![OptionWarning::VersionIgnored]),
            (options().timeout(minute), vec![]),
            (
                options().timeout(hour).drop_managed_fields(),
                vec![OptionWarning::TimeoutCut { timeout: hour }, OptionWarning::DropUnsure],
            ),
        ] {
            assert_eq!(options.warnings(), expected, "{options:?}");
        }
        assert_eq!(
            OptionWarning::LimitIgnored { limit: 5 }.to_string(),
            "limit 5 is ignored with resource version 0: the server sends the whole collection"
        );
        assert_eq!(
            OptionWarning::TimeoutCut { timeout: hour }.to_string(),
            "timeout 3600s is cut to the server's own --request-timeout, 60s by default"
        );
    }

    #[test]
    fn accept_headers() {
        let transform = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let drop = ";drop=metadata.managedFields";
        for (options, parameters) in [
            (options(), String::new()),
            (options().metadata_only(), transform.to_owned()),
            (options().drop_managed_fields(), drop.to_owned()),
            (options().metadata_only().drop_managed_fields(), format!("{transform}{drop}")),
        ] {
            let expected = format!("application/vnd.kubernetes.protobuf{parameters},application/json{parameters}");
            assert_eq!(options.accept(), expected);
            assert_eq!(options.json().accept(), format!("application/json{parameters}"));
        }
    }

    /// The test vectors of the draft.
    #[test]
    fn fnv() {
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv_1a(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn shards_share_out_all_hashes() {
        for of in (1..=300).chain([65_535, 65_537, u32::MAX]) {
            let shard = |index| Shard::new(index, of).unwrap().hashes();
            assert_eq!(shard(0).start, 0);
            assert_eq!(shard(of - 1).end, 1 << 64);
            for index in 1..of.min(300) {
                assert_eq!(shard(index - 1).end, shard(index).start);
                assert!(!shard(index).is_empty());
            }
        }
    }

    #[test]
    fn shard_selectors() {
        for (shard, start, end) in [
            ("0/1", "0x0000000000000000", "0x10000000000000000"),
            ("0/2", "0x0000000000000000", "0x8000000000000000"),
            ("1/2", "0x8000000000000000", "0x10000000000000000"),
            ("1/3", "0x5555555555555555", "0xaaaaaaaaaaaaaaaa"),
            ("3/4", "0xc000000000000000", "0x10000000000000000"),
        ] {
            let parsed: Shard = shard.parse().unwrap();
            assert_eq!(parsed.to_string(), shard);
            assert_eq!(parsed.selector(), format!("shardRange(object.metadata.uid, '{start}', '{end}')"));
        }
        for bad in ["", "1", "1/1", "2/1", "0/0", "-1/2", "a/b", "1/2/3", " 0/2", "0/4294967296"] {
            let error = bad.parse::<Shard>().expect_err(bad).to_string();
            let expected = "is no shard: write I/N, I counted from 0 and below N, as in 0/3, 1/3, 2/3";
            assert_eq!(error, format!("{bad:?} {expected}"));
        }
    }

    #[test]
    fn servers_that_comply_echo_the_shard() {
        let shard = Shard::new(0, 2).unwrap();
        // As in fixtures/pods-shard.pb.
        let echoed = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
        let other = "shardRange(object.metadata.uid, '0x0000000000000000', '0x4000000000000000')";
        let namespace = echoed.replace("uid", "namespace");
        for (echo, complied) in [
            (Some(echoed), true),
            (Some(&*echoed.replace(' ', "")), true),
            (Some(&*echoed.replace(',', "\t,\n")), true),
            (Some(other), false),
            (Some(&*namespace), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(shard.complied(echo), complied, "{echo:?}");
        }
    }
}
