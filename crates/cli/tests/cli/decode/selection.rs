//! Names, namespaces, labels and the limit.

use k8s_pb::api::core::v1::Pod;

use super::*;
use crate::support::{fixture, names, pods, stderr, stdout};

#[test]
fn prints_objects_by_name() {
    let all = names(&pods(&fixture("pods.pb")));
    let all: Vec<_> = all.lines().collect();
    let output = decode(&["-", all[7], all[3]], &fixture("pods.pb"));
    assert_eq!(
        (stdout(&output), stderr(&output), output.status.code()),
        (&*format!("{}\n{}\n", all[3], all[7]), "", Some(0))
    );
    // The rest of the body is not read.
    let output = decode(&["-", all[0]], &fixture("pods.pb")[..9000]);
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*format!("{}\n", all[0]), "", Some(0)));
    let output = decode(&["-", "--limit", "1", all[7], all[3]], &fixture("pods.pb"));
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*format!("{}\n", all[3]), "", Some(0)));
    let output = decode(&["-", "web/none", all[3], "none"], &fixture("pods.pb"));
    let expected = "error: stdin has no none, web/none\n";
    assert_eq!(
        (stdout(&output), stderr(&output), output.status.code()),
        (&*format!("{}\n", all[3]), expected, Some(1))
    );
    for selected in [&[all[3]][..], &["-n", "web"]] {
        let output = decode(&[&["-", "-o", "summary"], selected].concat(), &fixture("pods.pb"));
        assert_eq!((stdout(&output), output.status.code()), ("", Some(2)), "{selected:?}");
    }
    let roles = stdout(&decode(&[], &fixture("clusterroles.pb"))).lines().next().unwrap().to_owned();
    assert_eq!(stdout(&decode(&["-", &roles], &fixture("clusterroles.pb"))), format!("{roles}\n"));
}

#[test]
fn explains_missing_names() {
    let body = fixture("pods.pb");
    let all = names(&pods(&body));
    let [first, last] = [all.lines().next().unwrap(), all.lines().last().unwrap()];
    let name = first.split_once('/').unwrap().1;
    let hint = format!("stdin has no object {name} without a namespace; write NAMESPACE/NAME, for example {first}");
    let incomplete =
        "stdin: incomplete: the body ended before the list did in item 58, at byte 500000, 58 items delivered";
    for (args, bytes, expected) in [
        (&[name][..], body.len(), hint.clone()),
        (&[name, "web/none", "none"], body.len(), format!("{hint}; stdin has no none, web/none")),
        (&[last, "a"], 500_000, format!("{incomplete}; a, {last} may be in the missing part")),
        (&[name], 500_000, format!("{incomplete}; {hint}")),
        (&[name, "-n", "web"], body.len(), format!("stdin has no web/{name}")),
    ] {
        let output = decode(&[&["-"], args].concat(), &body[..bytes]);
        assert_eq!(stderr(&output), format!("error: {expected}\n"), "{args:?}");
        assert_eq!((stdout(&output), output.status.code()), ("", Some(1)), "{args:?}");
    }
    let output = decode(&["-", last], &fixture("pods-gzip.pb.gz")[..50_000]);
    assert!(stderr(&output).ends_with(&format!("; {last} may be in the missing part\n")), "{}", stderr(&output));
}

#[test]
fn selects_by_namespace_and_labels() {
    let body = fixture("pods.pb");
    let pods = pods(&body);
    let namespace = |pod: &Pod| pod.metadata.clone().unwrap().namespace.unwrap();
    let app = |pod: &Pod| pod.metadata.clone().unwrap().labels.get("app.kubernetes.io/name").cloned();
    let checkout = Some("checkout".to_owned());
    let inside = namespace(&pods[3]);
    let by = |selects: &dyn Fn(&Pod) -> bool| {
        let selected = pods.iter().filter(|pod| selects(pod)).cloned().collect::<Vec<_>>();
        assert!((1..120).contains(&selected.len()));
        names(&selected)
    };
    let one = names(&pods[3..4]);
    for (args, expected) in [
        (vec!["-n", &inside], by(&|pod| namespace(pod) == inside)),
        (vec!["-n", &inside, one.trim_end().split_once('/').unwrap().1], one.clone()),
        (vec!["-n", "none"], String::new()),
        (vec!["-l", "app.kubernetes.io/name in (checkout)"], by(&|pod| app(pod) == checkout)),
        (vec!["-n", &inside, "-l", "!none,app.kubernetes.io/name!=checkout"], {
            by(&|pod| namespace(pod) == inside && app(pod) != checkout)
        }),
    ] {
        let output = decode(&[&["-"], &args[..]].concat(), &body);
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)), "{args:?}");
    }
}

#[test]
fn stops_at_the_limit() {
    let expected: String = names(&pods(&fixture("pods.pb"))).split_inclusive('\n').take(5).collect();
    let output = decode(&["--limit", "5"], &fixture("pods.pb"));
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)));
    // The rest of the body is not read.
    let output = decode(&["--limit", "1"], &fixture("pods.pb")[..9000]);
    assert_eq!((stdout(&output).lines().count(), stderr(&output), output.status.code()), (1, "", Some(0)));
    let output = decode(&["--limit", "1", "-o", "summary"], &fixture("pods.pb"));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
}
