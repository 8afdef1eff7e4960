//! The alert rules and the dashboard of `deploy` use metrics that a mirror has, as docs/mirror.md lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use listwatch::client::Resource;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Running, Upstream, cached, mirror};

const PREFIXES: [&str; 2] = ["listwatch_mirror_", "process_"];

/// The labels that Prometheus adds to each sample.
const TARGET: [&str; 3] = ["namespace", "job", "pod"];

/// The names of metrics, with their labels.
type Names<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Returns the names in a text, and the labels in the braces after them: `name{label}` or `name{label="value"}`.
fn names(text: &str) -> Names<'_> {
    let mut names = Names::new();
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    for (at, _) in PREFIXES.into_iter().flat_map(|prefix| text.match_indices(prefix)) {
        let rest = &text[at..];
        let (name, rest) = rest.split_at(rest.bytes().position(|byte| !is_name(byte)).unwrap_or(rest.len()));
        // The samples of a histogram have suffixes, and the label of a bucket.
        let suffixes = ["_bucket", "_sum", "_count"];
        let name = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = braces.into_iter().flat_map(|(labels, _)| labels.split(','));
        let labels = labels.map(|label| label.split(['=', '!']).next().unwrap_or_default());
        let labels = labels.filter(|label| *label != "le");
        names.entry(name).or_default().extend(labels);
    }
    names
}

#[test]
fn rules_and_dashboard_use_documented_names_and_labels() {
    let (docs, rules, dashboard) =
        (read("docs/mirror.md"), read("deploy/chart/files/rules.yaml"), read("deploy/chart/files/dashboard.json"));
    let documented = names(&docs);
    for (file, text) in [("rules.yaml", &rules), ("dashboard.json", &dashboard)] {
        let used = names(text);
        assert!(used.len() > 6, "{file}: {used:?}");
        for (name, labels) in used {
            let known = documented.get(name).unwrap_or_else(|| panic!("{file}: no metric has the name {name}"));
            for label in labels {
                assert!(known.contains(label) || TARGET.contains(&label), "{file}: {name} has no label {label}");
            }
        }
    }
    // The dashboard shows each metric.
    let shown = names(&dashboard);
    assert_eq!(documented.keys().filter(|name| !shown.contains_key(*name)).collect::<Vec<_>>(), [&""; 0]);
}

#[tokio::test]
async fn a_mirror_has_the_documented_names_and_labels() {
    let upstream = Upstream::new();
    let meta = json!({ "name": "a", "namespace": "web", "uid": "a", "resourceVersion": "5" });
    let config_maps = cached(&upstream, &Resource::CONFIG_MAPS, vec![json!({ "metadata": meta })]).await;
    let mirror = Running::start(mirror(&upstream).resource(config_maps));
    for path in [
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/namespaces/web/configmaps/a",
        // Expired.
        "/api/v1/configmaps?watch=1&resourceVersion=1",
        "/api/v1/secrets",
        "/version",
    ] {
        mirror.get(path, "").await;
    }
    let mut watch = mirror.connect().await;
    let request =
        format!("GET /api/v1/configmaps?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: {}\r\n\r\n", mirror.address);
    watch.write_all(request.as_bytes()).await.unwrap();
    watch.read_u8().await.unwrap();
    let text = mirror.get("/metrics", "").await;
    let mut served = names(&text);
    // A name in a description is that of the family: the names of counters have a suffix.
    served.retain(|name, _| ["{", " ", "_bucket{"].iter().any(|end| text.contains(&format!("\n{name}{end}"))));
    let docs = read("docs/mirror.md");
    let mut documented = names(&docs);
    // This mirror serves no TLS, and reviews nobody: see the tests of `reviewed`.
    assert!(documented.remove("listwatch_mirror_review_duration_seconds").is_some());
    assert!(documented.remove("listwatch_mirror_certificate_expiry_timestamp_seconds").is_some());
    assert_eq!(served, documented, "{text}");
}
