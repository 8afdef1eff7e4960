//! The metrics of a mirror, as Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};

use listwatch::client::Resource;
use serde_json::json;

use crate::support::{Running, Upstream, cached, mirror};

/// The values of samples by their name and labels, all as text.
type Samples = BTreeMap<String, String>;

/// Parses the text format `OpenMetrics` as strictly as its specification: all lines of a family follow each other, HELP
/// and TYPE stand once and before the samples, names have the suffix of the type, and no sample stands twice.
fn parse(text: &str) -> Result<Samples, String> {
    let lines = text.strip_suffix("# EOF\n").ok_or("the text does not end in # EOF")?;
    let (mut families, mut samples) = (BTreeSet::new(), Samples::new());
    let (mut family, mut kind, mut seen) = ("", "unknown", BTreeSet::new());
    for line in lines.lines() {
        let refused = |reason: &str| format!("{reason}: {line}");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let [word, name, text] = [(); 3].map(|()| words.next().unwrap_or_default());
            if name != family {
                if !families.insert(name) {
                    return Err(refused("a family stands twice"));
                }
                (family, kind, seen) = (name, "unknown", BTreeSet::new());
            }
            if !["HELP", "TYPE", "UNIT"].contains(&word) || !seen.insert(word) || seen.contains("sample") {
                return Err(refused("a second description, or one after samples"));
            }
            if word == "TYPE" {
                kind = text;
            }
            continue;
        }
        seen.insert("sample");
        let (sample, value) = line.rsplit_once(' ').ok_or_else(|| refused("no value"))?;
        let (name, labels) = match sample.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').ok_or_else(|| refused("no end of labels"))?),
            None => (sample, ""),
        };
        let suffix = name.strip_prefix(family).ok_or_else(|| refused("a sample of another family"))?;
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        if !suffixes.contains(&suffix) {
            return Err(refused("a name that is not of the type"));
        }
        check_labels(labels).map_err(|reason| refused(&reason))?;
        value.parse::<f64>().map_err(|_| refused("no number"))?;
        if samples.insert(sample.to_owned(), value.to_owned()).is_some() {
            return Err(refused("a sample stands twice"));
        }
    }
    Ok(samples)
}

fn check_labels(mut labels: &str) -> Result<(), String> {
    let mut names = BTreeSet::new();
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").ok_or("a label without a value")?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || !names.insert(name) {
            return Err(format!("the label {name:?} is no name, or stands twice"));
        }
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().ok_or("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') if !matches!(chars.next(), Some((_, '\\' | '"' | 'n'))) => return Err("an escape".into()),
                _ => {}
            }
        };
        labels = &rest[end + 1..];
        labels = labels.strip_prefix(',').unwrap_or(labels);
    }
    Ok(())
}

#[test]
fn the_parser_refuses_repeated_descriptions_and_samples() {
    const HEAD: &str = "# HELP a Text.\n# TYPE a gauge\na{x=\"1\"} 1\n";
    assert_eq!(parse(&format!("{HEAD}# EOF\n")).unwrap(), Samples::from([(r#"a{x="1"}"#.to_owned(), "1".to_owned())]));
    for rest in [
        "",
        "# EOF\n# EOF\n",
        "# TYPE a gauge\n# EOF\n",
        "a{x=\"1\"} 2\n# EOF\n",
        "# TYPE b gauge\n# TYPE a gauge\n# EOF\n",
        "# TYPE b counter\nb 1\n# EOF\n",
        "b 1\n# EOF\n",
        "a{x=\"\\a\"} 1\n# EOF\n",
        "a{x=\"1\",x=\"2\"} 1\n# EOF\n",
        "a x\n# EOF\n",
    ] {
        assert!(parse(&format!("{HEAD}{rest}")).is_err(), "{rest}");
    }
}

#[tokio::test]
async fn a_strict_parser_reads_the_metrics_of_three_resources() {
    let upstream = Upstream::new();
    let mut mirror = mirror(&upstream);
    let resources = [Resource::CONFIG_MAPS, Resource::NODES, Resource::DEPLOYMENTS];
    for resource in &resources {
        let meta = json!({ "name": "a", "namespace": "web", "uid": "a", "resourceVersion": "5" });
        mirror = mirror.resource(cached(&upstream, resource, vec![json!({ "metadata": meta })]).await);
    }
    let mirror = Running::start(mirror);
    mirror.get("/api/v1/configmaps?resourceVersion=0", "").await;
    mirror.get("/api/v1/secrets", "").await;
    let response = mirror.get("/metrics", "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    let samples = parse(body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    for name in ["configmaps", "nodes", "deployments.apps"] {
        for (metric, expected) in [
            ("objects", Some("1")),
            ("ready", Some("1")),
            ("paged_snapshots", Some("0")),
            ("lag_seconds", None),
            ("log_age_seconds", None),
            ("budget_bytes", Some("1073741824")),
            ("syncs_total", Some("1")),
            ("relists_total", Some("0")),
            ("changes_total", Some("0")),
            ("skipped_objects", Some("0")),
        ] {
            let value = samples.get(&format!("listwatch_mirror_{metric}{{resource=\"{name}\"}}"));
            assert!(
                value.is_some_and(|value| expected.is_none_or(|expected| *value == expected)),
                "{name} {metric}: {body}"
            );
        }
    }
    for (sample, is_positive) in [
        (r#"listwatch_mirror_memory_bytes{resource="nodes",part="encoded"}"#, true),
        (r#"listwatch_mirror_memory_bytes{resource="nodes",part="compressed"}"#, false),
        (r#"listwatch_mirror_upstream_errors_total{resource="nodes",class="connection"}"#, false),
        ("listwatch_mirror_upstream_requests_total", false),
        ("process_resident_memory_bytes", true),
        ("process_open_fds", true),
        ("process_start_time_seconds", true),
    ] {
        let value: f64 = samples.get(sample).unwrap_or_else(|| panic!("{sample}: {body}")).parse().unwrap();
        assert_eq!(value > 0.0, is_positive, "{sample} {value}");
    }
    // A reader that does not name OpenMetrics gets the older format, whose parsers skip unknown lines.
    let response = mirror.get("/metrics", "Accept: text/plain\r\n").await;
    assert!(response.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{response}");
}
