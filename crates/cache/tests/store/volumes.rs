//! The example `volumes` finds with its indexes the volume that the PV controller finds in a scan of all volumes.

#[path = "../../examples/volumes/matching.rs"]
mod matching;

use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_pb::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    PersistentVolumeStatus, VolumeResourceRequirements,
};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta, Time};
use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};
use matching::{ACCESS_MODES, Volumes, bytes, name};
use prost::Message as _;

/// Quantities and their bytes, some of them equal.
const SIZES: [(&str, u128); 12] = [
    ("0", 0),
    ("1500m", 2),
    ("1e3", 1_000),
    ("1k", 1_000),
    ("1.5Ki", 1_536),
    ("500M", 500_000_000),
    ("0.5G", 500_000_000),
    ("5E-1", 1),
    ("10Gi", 10 << 30),
    ("10240Mi", 10 << 30),
    ("2Ti", 2 << 40),
    ("3E", 3_000_000_000_000_000_000),
];

#[test]
fn parses_quantities_as_kubernetes_does() {
    for (quantity, expected) in
        SIZES.into_iter().chain([("1.", 1), ("1.2", 2), (".5Pi", 1 << 49), ("1E+2", 100), ("7Ei", 7 << 60)])
    {
        assert_eq!(bytes(quantity), Some(expected), "{quantity}");
    }
    for invalid in ["", ".", "Gi", "-1", "1.2.3", "1gi", "1 Gi", "1K", "1e", "1ee3", "1e99", "1e-99", "é"] {
        assert_eq!(bytes(invalid), None, "{invalid}");
    }
}

#[test]
fn indexes_find_the_volume_that_a_scan_finds() {
    let mut random = Rng::with_seed(1);
    let (mut found, mut kept) = (0, 0);
    for _ in 0..200 {
        let store = Store::new(StorageFormat::Encoded);
        let index = Volumes::new(&store);
        let mut volumes: Vec<_> = (0..random.usize(..40)).map(|i| volume(&mut random, i)).collect();
        // Writes each volume, and then changes one.
        for i in 0..volumes.len() {
            write(&store, &volumes[i]);
            let changed = random.usize(..=i);
            let meta = volumes[changed].metadata.take().unwrap();
            let version = 100 + i;
            volumes[changed] = volume(&mut random, changed);
            volumes[changed].metadata.as_mut().unwrap().name = meta.name;
            volumes[changed].metadata.as_mut().unwrap().resource_version = Some(version.to_string());
            write(&store, &volumes[changed]);
        }
        volumes.sort_by(|a, b| name(a).cmp(name(b)));
        for _ in 0..40 {
            let claim = claim(&mut random);
            let expected = find_by_claim(&claim, &volumes);
            let actual = index.find(&claim).unwrap();
            assert_eq!(actual.as_deref().map(name), expected.map(name), "{claim:#?} of {volumes:#?}");
            found += usize::from(expected.is_some());
            kept += usize::from(expected.is_some_and(|volume| volume.spec.as_ref().unwrap().claim_ref.is_some()));
        }
    }
    assert!(found > 1_000 && kept > 100, "too few fit: {found}, {kept} of them reserved for the claim");
}

fn write(store: &Store<PersistentVolume>, volume: &PersistentVolume) {
    drop(store.apply(Encoding::Protobuf, &volume.encode_to_vec()).unwrap());
}

/// Kubernetes' `findByClaim`, which does not order sets of equally many access modes, nor volumes of one size.
fn find_by_claim<'v>(claim: &PersistentVolumeClaim, volumes: &'v [PersistentVolume]) -> Option<&'v PersistentVolume> {
    let requested = positions(&claim.spec.as_ref()?.access_modes);
    let modes = |volume: &PersistentVolume| positions(&volume.spec.as_ref().unwrap().access_modes);
    let mut sets: Vec<Vec<usize>> = volumes.iter().map(modes).collect();
    sets.retain(|set| requested.iter().all(|mode| set.contains(mode)));
    sets.sort_by_key(|set| (set.len(), set.clone()));
    sets.iter().find_map(|set| find_matching_volume(claim, volumes.iter().filter(|volume| modes(volume) == *set)))
}

fn positions(modes: &[String]) -> Vec<usize> {
    (0..ACCESS_MODES.len()).rev().filter(|&at| modes.iter().any(|mode| mode == ACCESS_MODES[at])).collect()
}

/// Kubernetes' `FindMatchingVolume`.
fn find_matching_volume<'v>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'v PersistentVolume>,
) -> Option<&'v PersistentVolume> {
    let (claim_meta, wanted) = (claim.metadata.as_ref()?, claim.spec.as_ref()?);
    let requested = wanted.resources.as_ref().and_then(|resources| resources.requests.get("storage"));
    let filesystem = |mode: &Option<String>| mode.as_deref() != Some("Block");
    let class = |meta: &ObjectMeta, class: &str| meta.annotations.get(BETA_CLASS).cloned().unwrap_or(class.to_owned());
    let mut smallest: Option<&PersistentVolume> = None;
    let size = |volume: &PersistentVolume| size(volume.spec.as_ref().unwrap().capacity.get("storage"));
    for volume in volumes {
        let (meta, spec) = (volume.metadata.as_ref()?, volume.spec.as_ref()?);
        let is_bound = spec.claim_ref.as_ref().map(|reference| {
            reference.name() == claim_meta.name()
                && reference.namespace() == claim_meta.namespace()
                && (reference.uid().is_empty() || reference.uid() == claim_meta.uid())
        });
        if is_bound == Some(false)
            || size(volume) < self::size(requested)
            || filesystem(&spec.volume_mode) != filesystem(&wanted.volume_mode)
            || meta.deletion_timestamp.is_some()
        {
            continue;
        }
        if is_bound == Some(true) {
            return Some(volume);
        }
        if volume.status.as_ref()?.phase() != "Available"
            || !matches(wanted.selector.as_ref(), meta)
            || class(meta, spec.storage_class_name()) != class(claim_meta, wanted.storage_class_name())
        {
            continue;
        }
        if smallest.is_none_or(|smallest| size(smallest) > size(volume)) {
            smallest = Some(volume);
        }
    }
    smallest
}

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn size(quantity: Option<&Quantity>) -> u128 {
    quantity.map_or(0, |quantity| SIZES.iter().find(|(text, _)| *text == quantity.string()).unwrap().1)
}

/// Evaluates the selectors that `claim` makes.
fn matches(selector: Option<&LabelSelector>, meta: &ObjectMeta) -> bool {
    let Some(selector) = selector else { return true };
    let tier = meta.labels.get("tier").map(String::as_str);
    let operator = selector.match_expressions.first().map(LabelSelectorRequirement::operator);
    (selector.match_labels.is_empty() || tier == Some("gold"))
        && match operator {
            None => true,
            Some("In") => matches!(tier, Some("gold" | "silver")),
            Some("NotIn") => !matches!(tier, Some("gold" | "silver")),
            Some(operator) => tier.is_some() == (operator == "Exists"),
        }
}

fn volume(random: &mut Rng, i: usize) -> PersistentVolume {
    let labels = one_of(random, &["", "gold", "silver", "bronze"]).map(|tier| ("tier".to_owned(), tier));
    let claim_ref = random.u8(..3).eq(&0).then(|| ObjectReference {
        namespace: Some("default".to_owned()),
        name: Some(format!("claim-{}", random.u8(..3))),
        uid: one_of(random, &["", "uid-0", "uid-1"]),
        ..Default::default()
    });
    PersistentVolume {
        metadata: Some(ObjectMeta {
            name: Some(format!("volume-{i:02}")),
            resource_version: Some((i + 1).to_string()),
            labels: labels.into_iter().collect(),
            annotations: annotations(random),
            deletion_timestamp: random.u8(..8).eq(&0).then(Time::default),
            ..Default::default()
        }),
        spec: Some(PersistentVolumeSpec {
            capacity: sizes(random),
            access_modes: access_modes(random, 1),
            claim_ref,
            storage_class_name: one_of(random, &["", "fast"]),
            volume_mode: one_of(random, &["", "Filesystem", "Block"]),
            ..Default::default()
        }),
        status: Some(PersistentVolumeStatus {
            phase: one_of(random, &["Available", "Available", "Available", "Released"]),
            ..Default::default()
        }),
    }
}

fn claim(random: &mut Rng) -> PersistentVolumeClaim {
    let i = random.u8(..3);
    let selector = random.u8(..3).eq(&0).then(|| {
        let expression = one_of(random, &["", "In", "NotIn", "Exists", "DoesNotExist"]).map(|operator| {
            let values: &[&str] = if operator.ends_with("In") { &["gold", "silver"] } else { &[] };
            LabelSelectorRequirement {
                key: Some("tier".to_owned()),
                operator: Some(operator),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            }
        });
        LabelSelector {
            match_labels: one_of(random, &["", "gold"]).map(|tier| ("tier".to_owned(), tier)).into_iter().collect(),
            match_expressions: expression.into_iter().collect(),
        }
    });
    PersistentVolumeClaim {
        metadata: Some(ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some(format!("claim-{i}")),
            uid: Some(format!("uid-{i}")),
            annotations: annotations(random),
            ..Default::default()
        }),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: access_modes(random, 0),
            selector,
            resources: Some(VolumeResourceRequirements { requests: sizes(random), ..Default::default() }),
            storage_class_name: one_of(random, &["", "fast"]),
            volume_mode: one_of(random, &["", "Filesystem", "Block"]),
            ..Default::default()
        }),
        status: None,
    }
}

/// Returns one of the texts, or `None` for the empty text.
fn one_of(random: &mut Rng, texts: &[&str]) -> Option<String> {
    random.choice(texts).filter(|text| !text.is_empty()).map(|&text| text.to_owned())
}

fn annotations(random: &mut Rng) -> BTreeMap<String, String> {
    let class = one_of(random, &["", "", "", "", "fast", "slow"]);
    class.map(|class| (BETA_CLASS.to_owned(), class)).into_iter().collect()
}

fn sizes(random: &mut Rng) -> BTreeMap<String, Quantity> {
    let texts = SIZES.map(|(text, _)| text);
    one_of(random, &texts).map(|text| ("storage".to_owned(), Quantity { string: Some(text) })).into_iter().collect()
}

fn access_modes(random: &mut Rng, at_least: usize) -> Vec<String> {
    let mut modes = ACCESS_MODES.map(str::to_owned).to_vec();
    random.shuffle(&mut modes);
    modes.truncate(random.usize(at_least..=2));
    modes
}
