//! Finds the volume for a claim by the rules of Kubernetes: `findByClaim` in
//! `pkg/controller/volume/persistentvolume/index.go`, and `FindMatchingVolume` in
//! `staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go` without a node and without delayed binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_pb::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use listwatch_cache::{Index, Object, StoreReader};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Finds volumes in a store. Of several equal volumes it returns the first by name.
pub struct Volumes {
    /// Volumes that any claim may bind.
    available: Index<PersistentVolume, Size>,
    /// Volumes that are reserved for a claim, by its namespace and name.
    kept: Index<PersistentVolume, (String, String)>,
}

/// What a volume offers, or a claim requests. Its order sorts volumes of equal class, mode and access modes by size.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    class: String,
    volume_mode: String,
    access_modes: u8,
    bytes: u128,
}

impl Volumes {
    pub fn new(store: &StoreReader<PersistentVolume>) -> Self {
        let available = store.index("available", |volume| {
            let volume = volume.decode()?;
            let is_available = volume.status.as_ref().is_some_and(|status| status.phase() == "Available");
            (is_available && claim_ref(&volume).is_none() && !is_deleted(&volume))
                .then(|| Size::of_volume(&volume))
                .transpose()
        });
        let kept = store.index("kept", |volume| {
            let volume = volume.decode()?;
            let claim = claim_ref(&volume).filter(|_| !is_deleted(&volume));
            Ok::<_, Error>(claim.map(|claim| (claim.namespace().to_owned(), claim.name().to_owned())))
        });
        Self { available, kept }
    }

    /// Returns the smallest volume that fits, among those with the fewest access modes. A volume with the same access
    /// modes that is reserved for the claim precedes it.
    pub fn find(&self, claim: &PersistentVolumeClaim) -> Result<Option<Arc<PersistentVolume>>, Error> {
        let wanted = Size::of_claim(claim)?;
        let kept = self.kept_for(claim, &wanted)?;
        let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let mut sets: Vec<u8> = (0..1 << ACCESS_MODES.len()).collect();
        sets.retain(|set| set & wanted.access_modes == wanted.access_modes);
        sets.sort_by_key(|set| set.count_ones());
        for set in sets {
            let kept = kept.iter().filter(|(access_modes, _)| *access_modes == set);
            if let Some(volume) = first_by_name(kept.map(|(_, volume)| Arc::clone(volume))) {
                return Ok(Some(volume));
            }
            let smallest = Size { access_modes: set, ..wanted.clone() };
            let largest = Size { bytes: u128::MAX, ..smallest.clone() };
            for (_, volumes) in self.available.range(smallest..=largest) {
                let volumes: Vec<_> = volumes.iter().map(Object::decode).collect::<Result<_, _>>()?;
                let selected = volumes.into_iter().filter(|volume| selects(selector, volume));
                if let Some(volume) = first_by_name(selected) {
                    return Ok(Some(volume));
                }
            }
        }
        Ok(None)
    }

    /// Returns the volumes that are reserved for the claim and fit, each with its access modes.
    fn kept_for(
        &self,
        claim: &PersistentVolumeClaim,
        wanted: &Size,
    ) -> Result<Vec<(u8, Arc<PersistentVolume>)>, Error> {
        let Some(meta) = &claim.metadata else { return Ok(Vec::new()) };
        let mut kept = Vec::new();
        for volume in self.kept.get(&(meta.namespace().to_owned(), meta.name().to_owned())) {
            let volume = volume.decode()?;
            let size = Size::of_volume(&volume)?;
            let uid = claim_ref(&volume).map_or("", ObjectReference::uid);
            let is_this = uid.is_empty() || uid == meta.uid();
            if is_this && size.volume_mode == wanted.volume_mode && size.bytes >= wanted.bytes {
                kept.push((size.access_modes, volume));
            }
        }
        Ok(kept)
    }
}

impl Size {
    fn of_volume(volume: &PersistentVolume) -> Result<Self, Error> {
        let (Some(meta), Some(spec)) = (&volume.metadata, &volume.spec) else { return Err("not a volume".into()) };
        Self::new(meta, spec.storage_class_name(), spec.volume_mode(), &spec.access_modes, Some(&spec.capacity))
    }

    fn of_claim(claim: &PersistentVolumeClaim) -> Result<Self, Error> {
        let (Some(meta), Some(spec)) = (&claim.metadata, &claim.spec) else { return Err("not a claim".into()) };
        let requests = spec.resources.as_ref().map(|resources| &resources.requests);
        Self::new(meta, spec.storage_class_name(), spec.volume_mode(), &spec.access_modes, requests)
    }

    fn new(
        meta: &ObjectMeta,
        class: &str,
        volume_mode: &str,
        access_modes: &[String],
        quantities: Option<&BTreeMap<String, Quantity>>,
    ) -> Result<Self, Error> {
        let class = meta.annotations.get("volume.beta.kubernetes.io/storage-class").map_or(class, String::as_str);
        let volume_mode = if volume_mode.is_empty() { "Filesystem" } else { volume_mode };
        let mut set = 0;
        for mode in access_modes {
            let known = ACCESS_MODES.iter().position(|known| known == mode);
            set |= 1 << known.ok_or_else(|| format!("unknown access mode {mode}"))?;
        }
        let bytes = match quantities.and_then(|quantities| quantities.get("storage")) {
            Some(quantity) => bytes(quantity.string()).ok_or_else(|| format!("not a size: {}", quantity.string()))?,
            None => 0,
        };
        Ok(Self { class: class.to_owned(), volume_mode: volume_mode.to_owned(), access_modes: set, bytes })
    }
}

pub const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Returns the bytes of a quantity (`500M`, `1.5Gi`, `1e3`), rounded up; `None` if the text is malformed, negative or
/// too large.
pub fn bytes(quantity: &str) -> Option<u128> {
    let end = quantity.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let at = |suffixes: &[&str]| suffixes.iter().zip(0_i32..).find(|(known, _)| **known == suffix).map(|(_, at)| at);
    let (base, exponent) = if let Some(at) = at(&["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) {
        (1024_u128, at + 1)
    } else if let Some(at) = at(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]) {
        (10, 3 * (at - 3))
    } else {
        (10, suffix.strip_prefix(['e', 'E'])?.parse().ok()?)
    };
    let power = base.checked_pow(exponent.unsigned_abs())?;
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    if exponent < 0 {
        Some(digits.div_ceil(divisor.checked_mul(power)?))
    } else {
        Some(digits.checked_mul(power)?.div_ceil(divisor))
    }
}

pub fn name(volume: &PersistentVolume) -> &str {
    volume.metadata.as_ref().map_or("", |meta| meta.name())
}

fn first_by_name(volumes: impl Iterator<Item = Arc<PersistentVolume>>) -> Option<Arc<PersistentVolume>> {
    volumes.min_by(|a, b| name(a).cmp(name(b)))
}

fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn is_deleted(volume: &PersistentVolume) -> bool {
    volume.metadata.as_ref().is_some_and(|meta| meta.deletion_timestamp.is_some())
}

fn selects(selector: Option<&LabelSelector>, volume: &PersistentVolume) -> bool {
    let (Some(selector), Some(meta)) = (selector, &volume.metadata) else { return true };
    let expressions = selector.match_expressions.iter().all(|expression| {
        let value = meta.labels.get(expression.key());
        let is_in = value.is_some_and(|value| expression.values.contains(value));
        match expression.operator() {
            "In" => is_in,
            "NotIn" => !is_in,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    });
    expressions && selector.match_labels.iter().all(|(key, value)| meta.labels.get(key) == Some(value))
}
