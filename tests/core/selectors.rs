//! Selectors select the same objects as a real API server does from the same collection.

use std::collections::BTreeSet;

use listwatch::{Event, ItemRef, ListDecoder};
use listwatch::{FieldSelector, LabelSelector, Shard};

use crate::support::fixture;

fn uids(body: &[u8], mut select: impl FnMut(&ItemRef<'_>) -> bool) -> BTreeSet<String> {
    let mut decoder = ListDecoder::new();
    let (mut rest, mut uids) = (body, BTreeSet::new());
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        match event {
            Event::Item(item) if select(&item) => drop(uids.insert(item.meta().unwrap().uid().into_owned())),
            _ => {}
        }
    }
    decoder.finish().unwrap();
    uids
}

#[test]
fn label_and_field_selectors_select_as_the_server_does() {
    let labels: LabelSelector = "app.kubernetes.io/name=ledger".parse().unwrap();
    let fields: FieldSelector = "status.phase=Running".parse().unwrap();
    let expected = uids(&fixture("pods-selected.pb"), |_| true);
    let pods = fixture("pods.pb");
    let selected = uids(&pods, |item| labels.matches(&item.meta().unwrap()).unwrap() && fields.matches(item).unwrap());
    assert!(!expected.is_empty() && expected.len() < 120);
    assert_eq!(selected, expected);
}

#[test]
fn a_selector_tells_what_must_have_one_value() {
    let fields: FieldSelector = "spec.nodeName=n,status.phase!=Failed".parse().unwrap();
    assert_eq!(fields.equations().collect::<Vec<_>>(), [("spec.nodeName", "n")]);
    let labels: LabelSelector = "a=1,b!=2,c in (3),d in (4,5),e".parse().unwrap();
    assert_eq!(labels.equations().collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
    let running = uids(&fixture("pods-selected.pb"), |item| {
        FieldSelector::text(item, "status.phase").unwrap() == "Running"
            && FieldSelector::text(item, "spec.hostNetwork").unwrap() == "false"
    });
    assert_eq!(running, uids(&fixture("pods-selected.pb"), |_| true));
}

#[test]
fn shards_select_as_the_server_does() {
    let shard = Shard::new(0, 2).unwrap();
    let expected = uids(&fixture("pods-shard.pb"), |_| true);
    let selected = uids(&fixture("pods.pb"), |item| shard.contains(&item.meta().unwrap().uid()));
    assert!(!expected.is_empty() && expected.len() < 120);
    assert_eq!(selected, expected);
    // Every object is in exactly one shard.
    let shards = (0..7).map(|index| Shard::new(index, 7).unwrap());
    for uid in uids(&fixture("pods.pb"), |_| true) {
        assert_eq!(shards.clone().filter(|shard| shard.contains(&uid)).count(), 1);
    }
}
