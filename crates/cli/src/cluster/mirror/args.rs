//! The options of `listwatch mirror`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use listwatch_cache::Strategy;
use listwatch_cache::{ChangeLogLimits, StorageFormat};

use super::collection::IndexArg;
use super::lifetime::LifetimeArg;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::query::ResourceValueParser;

/// Serve collections from memory over the Kubernetes API, read-only.
///
/// The mirror keeps each RESOURCE in memory and up to date, for kubectl, client-go and kube-rs. It answers GETs, lists
/// and watches of RESOURCE from memory. It forwards discovery and other GETs with its own credentials, and refuses
/// writes.
///
/// By default it serves on loopback, without authentication: each user of this machine can read what the mirror may
/// read. On another address it needs TLS, and reviews the token and the rights of each reader.
///
/// The mirror survives disconnects and restarts of the server, and shows its progress on stderr. A resource that is
/// missing or forbidden keeps no other from being served. Ctrl-C and SIGTERM end the mirror, after giving open requests
/// 10 s to finish. deploy/manifests.yaml runs it in Kubernetes, with the RBAC.
#[derive(clap::Args)]
#[command(after_help = "\
Paths of its own: /livez, /healthz and /readyz (also /readyz/RESOURCE) for probes, without a token; /metrics for Prometheus.

A node-local mirror, for agents that share one trust domain. A DaemonSet runs this with `hostNetwork: true`, and the agents of the
node list and watch http://127.0.0.1:8002. After a restart the mirror resumes from --dir without a list:
  listwatch mirror pods nodes services endpointslices --dir /var/lib/listwatch --drop metadata.managedFields \\
      --index spec.nodeName --stale-reads

A mirror for a CI fleet. Each reader needs a token of the cluster, and has its own rights. The mirror needs `create` on `tokenreviews`
and `subjectaccessreviews`:
  listwatch mirror pods jobs configmaps -n ci --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key --budget 2048
  kubectl --server https://listwatch-mirror.ci.svc:8443 --certificate-authority ca.crt \\
      --token \"$(kubectl create token runner -n ci)\" get pods -n ci -o name

Looking around with kubectl. Tables of common kinds, JSON and names come from memory:
  listwatch mirror pods deploy,rs nodes --index pods:spec.nodeName --write-kubeconfig mirror.kubeconfig
  kubectl --kubeconfig mirror.kubeconfig get pods -A --field-selector spec.nodeName=node-1 -o name
  kubectl --kubeconfig mirror.kubeconfig get deploy,rs -A -o json > workloads.json
  kubectl --kubeconfig mirror.kubeconfig get --raw '/readyz?verbose'

An etcd snapshot of a dead cluster, or the dump of another one, for kubectl and k9s:
  listwatch mirror --from snapshot.db --write-kubeconfig dead.kubeconfig
  kubectl --kubeconfig dead.kubeconfig describe pod -n shop web-1

A file of settings, such as `resources: [pods, nodes]` and `budget: 2048`. It has the names of these options:
  listwatch mirror -f mirror.yaml --budget 4096")]
#[command(args_override_self = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct MirrorArgs {
    /// Resource types, as for `kubectl get`: pods, deploy, widgets.example.com. Separate them by spaces or commas
    #[arg(required_unless_present_any = ["settings", "from"], value_name = "RESOURCE", value_delimiter = ',', value_parser = ResourceValueParser, hide_possible_values = true)]
    pub resources: Vec<String>,

    /// Namespace to mirror [default: all].
    ///
    /// Reads of other namespaces are forwarded. Resources without namespaces are mirrored whole.
    #[arg(short, long, value_name = "NAME", overrides_with = "all_namespaces")]
    pub namespace: Option<String>,

    /// Mirror all namespaces, which is the default
    #[arg(short = 'A', long, overrides_with = "namespace")]
    pub all_namespaces: bool,

    /// YAML file of settings, or `-` for stdin: the names and values of these options, and `resources`.
    ///
    /// An option on the command line replaces the same one in the file, except that resources and repeatable options
    /// add up.
    #[arg(short = 'f', long, value_name = "FILE", value_parser = clap::builder::OsStringValueParser::new())]
    pub settings: Option<OsString>,

    /// Storage format of objects in memory
    #[arg(long, value_enum, default_value_t = StorageFormatArg::Compressed, value_name = "FORMAT")]
    pub format: StorageFormatArg,

    /// Memory limit for all objects, indexes and change logs together, in MiB.
    ///
    /// Resources then sync one after the other. If an object does not fit, requests for its resource get 503 until a
    /// relist makes it complete.
    #[arg(long, value_name = "MIB")]
    pub budget: Option<usize>,

    /// Store objects without this field, such as `metadata.managedFields`; repeat for several fields.
    ///
    /// Selectors find nothing in a dropped field.
    #[arg(long, value_name = "PATH")]
    pub drop: Vec<String>,

    /// Answer the field selector PATH=VALUE from an index, such as `spec.nodeName`; repeat for several indexes.
    ///
    /// `pods:spec.nodeName` indexes one of several resources.
    #[arg(long, value_name = "[RESOURCE:]PATH")]
    pub index: Vec<IndexArg>,

    /// Directory with one file for each resource, from which watches resume without a list.
    ///
    /// The files are loaded at the start, and saved every 5 minutes and at the end. A file of another collection is
    /// refused.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Memory limit for the recent changes of each resource, from which watches resume, in MiB.
    ///
    /// With --budget, the changes of all resources together take at most a quarter of the budget. A watch from an older
    /// change gets 410, and its reader lists again.
    #[arg(long, value_name = "MIB", default_value_t = ChangeLogLimits::default().bytes >> 20)]
    pub log_size: usize,

    /// Age limit for the recent changes of each resource, such as 90s, 10m or 1h
    #[arg(long, value_name = "DURATION", default_value_t = LifetimeArg(ChangeLogLimits::default().age))]
    pub log_age: LifetimeArg,

    /// Answer GETs, lists and watches at the mirror's version.
    ///
    /// By default, the mirror first confirms that nothing is newer, unless the reader names a version. It forwards
    /// small reads, and those that it cannot confirm.
    #[arg(long)]
    pub stale_reads: bool,

    /// How to sync [default: what the server supports].
    ///
    /// A list that exceeds the server's request timeout is repeated in pages.
    #[arg(long, value_enum, value_name = "STRATEGY")]
    pub strategy: Option<StrategyArg>,

    /// Address and port to serve on. Port 0 chooses a free one.
    ///
    /// An address that is not loopback requires --tls-cert and --tls-key.
    #[arg(long, default_value = "127.0.0.1:8002", value_name = "ADDRESS", value_parser = parse_address)]
    pub listen: SocketAddr,

    /// Address and port of a second listener, for /livez, /readyz and /metrics only.
    ///
    /// It answers everybody, without TLS, however many readers the mirror has. Its metrics do not name the mirrored
    /// resources; see --open-metrics.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub probe_listen: Option<SocketAddr>,

    /// Show the metrics of single resources on --probe-listen, too.
    ///
    /// Everybody who can connect then sees the names of the mirrored resources, and how many objects they have.
    #[arg(long, requires = "probe_listen")]
    pub open_metrics: bool,

    /// Let /readyz fail while all resources have been out of date for this long, such as 5m [default: never].
    ///
    /// By default, the mirror stays ready while the API server does not answer, and answers from memory. A cache learns
    /// only once a minute that nothing has changed, so use 3m or more.
    #[arg(long, value_name = "DURATION")]
    pub unready_after: Option<LifetimeArg>,

    /// Write a line of JSON to stdout for each request.
    ///
    /// It has the time, the user, the verb, the resource or the path, the code, the seconds until the response began,
    /// and its source: memory, forwarded, own (probes and metrics) or refused.
    #[arg(long)]
    pub access_log: bool,

    /// Time between SIGTERM, when /readyz begins to fail, and the end of the listener, such as 10s.
    ///
    /// In this time, balancers notice that the mirror leaves, and it still answers.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub shutdown_delay: LifetimeArg,

    /// File of the certificate (PEM), followed by its intermediates.
    ///
    /// The mirror then serves TLS, and reviews the token and the rights of each reader.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// File of the certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Audience that readers' tokens must be for; repeatable.
    ///
    /// By default, readers send tokens for the API server. A token for an audience of its own, such as a projected
    /// service account token, is of no use elsewhere.
    #[arg(long, value_name = "AUDIENCE", requires = "tls_cert")]
    pub token_audience: Vec<String>,

    /// How long a reader's last review is used while the API server answers no reviews, such as 5m or 1h.
    ///
    /// A reader that was allowed to read then keeps reading from memory during an outage of the API server. In this
    /// time, the mirror does not notice that a token has expired or a right was withdrawn. 0s turns it off.
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "tls_cert")]
    pub stale_reviews: LifetimeArg,

    /// With --from, serve Secrets too
    #[arg(long, requires = "from")]
    pub with_secrets: bool,

    /// Record every change of the resources into this folder, and answer lists at exact versions from it.
    ///
    /// `record --history` has more options, and `get --from DIR --at TIME`, `log` and `diff` read the folder. With
    /// --dir, a restart of the mirror is no gap in the history.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    pub history: Option<PathBuf>,

    /// Write a kubeconfig for this mirror to this file, without credentials. Only its owner can read it.
    ///
    /// With --from, it contains the token that readers need.
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The storage formats that a mirror offers.
#[derive(Clone, Copy, ValueEnum)]
pub enum StorageFormatArg {
    /// As received: the fastest to read
    Encoded,
    /// Compressed, objects of one owner as differences: whole Pods take about a fourteenth of their size
    Compressed,
}

/// The strategies to sync.
#[derive(Clone, Copy, ValueEnum)]
pub enum StrategyArg {
    /// The initial events of a watch
    WatchList,
    /// A list, then a watch from its version
    ListThenWatch,
    /// A watch first, then a list: for collections that take longer to list than the server keeps history
    WatchFirst,
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address with a port, such as 127.0.0.1:8002")
}

impl From<StorageFormatArg> for StorageFormat {
    fn from(format: StorageFormatArg) -> Self {
        match format {
            StorageFormatArg::Encoded => Self::Encoded,
            StorageFormatArg::Compressed => Self::Compressed,
        }
    }
}

impl From<StrategyArg> for Strategy {
    fn from(strategy: StrategyArg) -> Self {
        match strategy {
            StrategyArg::WatchList => Self::WatchList,
            StrategyArg::ListThenWatch => Self::ListThenWatch,
            StrategyArg::WatchFirst => Self::WatchFirst,
        }
    }
}
