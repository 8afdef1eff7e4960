//! The interface that writers call. It decides how an object is stored, and looks candidates up in the store.

use std::borrow::Cow;
use std::hash::RandomState;
use std::sync::{Arc, Weak};

use listwatch::{Encoding, ItemRef, MetaView};

use crate::compress::decide::{Comparison, Verdict};
use crate::compress::decoder::{CompressedForm, CompressedObject, Decoder};
use crate::compress::dictionary::{Dictionary, NamespaceDictionaries, NamespaceDictionary, StoredWhole};
use crate::compress::elide::ElidedObject;
use crate::compress::encoder::Encoder;
use crate::compress::group::{DeltaGroups, GroupKey, GroupReference, Pace, StateId};
use crate::compress::pack::PackedObject;
use crate::compress::pool::Reference;
use crate::compress::renewal::{Renewal, RenewedReferences};
use crate::compress::training::TrainingPolicy;
use crate::key::{Identity, Namespaces};

/// What the writer of a store needs for compression.
#[derive(Default)]
pub(crate) struct Compression {
    decoder: Decoder,
    encoder: Option<Encoder>,
    training: TrainingPolicy,
    hasher: RandomState,
    groups: DeltaGroups,
    by_namespace: NamespaceDictionaries,
    comparand: Comparand,
    /// The renewal that follows the last training, until it has visited all objects.
    renewal: Option<Renewal>,
    renewed: RenewedReferences,
}

/// The states of a store, among which compression looks candidates up.
pub(crate) trait StoredStates {
    /// A state, and the place of its object.
    type Found;

    /// Finds the object that has this state.
    fn find_state(&self, state: StateId) -> Option<Self::Found>;

    /// Returns the state if the object is stored whole.
    fn as_whole(found: &Self::Found) -> Option<StoredWhole<'_>>;
}

pub(crate) struct NewObject<'a> {
    pub(crate) encoding: Encoding,
    pub(crate) bytes: &'a [u8],
    pub(crate) meta: &'a MetaView<'a>,
    pub(crate) identity: &'a Identity<'a>,
    /// The state that it replaces.
    pub(crate) replaced: Option<Replaced<'a>>,
}

/// A state that a new object replaces: its address, and its reference if it is a delta.
#[derive(Clone, Copy)]
pub(crate) struct Replaced<'a> {
    pub(crate) address: usize,
    pub(crate) reference: Option<&'a Arc<Reference>>,
}

pub(crate) enum EncodeOutcome<'c, F> {
    /// The delta to the reference. For the first delta of a group, `candidate` is the object whose bytes have become
    /// the reference, and the writer replaces the candidate's entry by an empty delta.
    Delta { reference: Arc<Reference>, body: Cow<'c, [u8]>, candidate: Option<F> },
    /// The object compressed by itself. If `candidate_of` names a group, the writer calls
    /// [`Compression::set_candidate`] for this group once the state has an address.
    Whole { shared: Arc<NamespaceDictionary>, body: &'c [u8], candidate_of: Option<GroupKey> },
    /// The object stays encoded, because compression does not make it shorter.
    Incompressible,
}

/// An object that is stored whole and was compressed again. The writer replaces its entry.
pub(crate) struct RecompressedWhole<'c> {
    pub(crate) shared: Arc<NamespaceDictionary>,
    pub(crate) body: &'c [u8],
    pub(crate) group: Option<GroupKey>,
}

pub(crate) struct CompressionMemory {
    /// Tables and buffers from Rust's allocator.
    pub(crate) buffers: usize,
    /// Contexts and dictionaries, which are outside of Rust's allocator.
    pub(crate) zstd: usize,
}

enum Decision<'a> {
    /// As the delta to the reference of the group. The encoder has this delta.
    Delta(Arc<Reference>),
    /// As the delta to the candidate, which becomes the reference.
    FirstDelta(StoredWhole<'a>),
    /// Whole. The group still compares its objects with the same object as before.
    Whole,
    /// Whole; the group compares its next object with this one.
    Candidate,
}

/// The reference or candidate with which the last object was compared. It is kept because the next object mostly
/// belongs to the same group.
///
/// The buffer stays allocated, because new buffers would leave holes between the entries of a list. The pool keeps no
/// reference for the writer.
#[derive(Default)]
struct Comparand {
    /// The reference whose bytes `packed` contains, or `None` if they are a candidate's.
    reference: Option<Weak<Reference>>,
    packed: PackedObject,
    frame_len: usize,
    is_trained: bool,
}

impl Compression {
    /// Creates the compression of a store. Readers use clones of its decoder.
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self { decoder, ..Self::default() }
    }

    /// Compresses an object, and tells the writer how to store it.
    pub(crate) fn encode<S: StoredStates>(
        &mut self,
        object: &NewObject<'_>,
        states: &S,
        namespaces: &mut Namespaces,
    ) -> EncodeOutcome<'_, S::Found> {
        let Some(elided) = ElidedObject::of(object.identity, object.bytes) else {
            return EncodeOutcome::Incompressible;
        };
        let group = self.group_of(object.meta, object.bytes.len(), &object.identity.namespace);
        let encoder = self.encoder.get_or_insert_with(Encoder::new);
        encoder.pack(&elided, group.is_some());
        let Some(group) = group else { return self.encode_whole(object, None, namespaces) };
        let candidate = self.groups.candidate(group);
        let candidate = candidate.filter(|state| object.replaced.is_none_or(|old| !state.is_at(old.address)));
        let candidate = candidate.and_then(|state| states.find_state(state));
        let decision = self.decide(group, object, candidate.as_ref().and_then(S::as_whole));
        let packed = self.encoder.as_ref().map(Encoder::packed).unwrap_or_default();
        self.groups.remember_previous(group, &object.identity.name, packed);
        match decision {
            Decision::Delta(reference) => self.delta(group, reference, None, namespaces),
            Decision::FirstDelta(whole) => {
                let reference = self.decoder.new_reference(whole);
                self.comparand.reference = Some(Arc::downgrade(&reference));
                // The group is known already, so this displaces no other group.
                self.groups.set_reference(group, &reference, |_| true);
                self.delta(group, reference, candidate, namespaces)
            }
            Decision::Whole => self.encode_whole(object, None, namespaces),
            Decision::Candidate => self.encode_whole(object, Some(group), namespaces),
        }
    }

    fn group_of(&self, meta: &MetaView<'_>, len: usize, namespace: &str) -> Option<GroupKey> {
        GroupKey::of(&self.hasher, meta, len, namespace)
    }

    fn group_of_bytes(&self, encoding: Encoding, bytes: &[u8], namespace: &str) -> Option<GroupKey> {
        self.group_of(&ItemRef::new(encoding, bytes).meta().ok()?, bytes.len(), namespace)
    }

    /// Returns the encoder's last delta and its reference. During a renewal, this is the reference with the same bytes
    /// that was compressed with the current dictionary.
    fn delta<F>(
        &mut self,
        group: GroupKey,
        reference: Arc<Reference>,
        candidate: Option<F>,
        namespaces: &mut Namespaces,
    ) -> EncodeOutcome<'_, F> {
        if !self.is_old(reference.object().shared) {
            let body = self.encoder.as_ref().map(Encoder::last_delta).unwrap_or_default().into();
            return EncodeOutcome::Delta { reference, body, candidate };
        }
        // The delta is copied, because the renewal uses the encoder too.
        let body = self.encoder.as_ref().map(Encoder::last_delta).unwrap_or_default().to_vec().into();
        let renewed = self.renew(&reference, |_| Some(group), namespaces);
        EncodeOutcome::Delta { reference: renewed.unwrap_or(reference), body, candidate }
    }

    fn encode_whole<F>(
        &mut self,
        object: &NewObject<'_>,
        candidate_of: Option<GroupKey>,
        namespaces: &mut Namespaces,
    ) -> EncodeOutcome<'_, F> {
        let Some((body, dictionary)) = compress_whole(&mut self.encoder, Some(&mut self.training)) else {
            return EncodeOutcome::Incompressible;
        };
        let shared = self.by_namespace.get(namespaces, &object.identity.namespace, dictionary);
        EncodeOutcome::Whole { shared, body, candidate_of }
    }

    /// Decides how a new object of the group is stored. If it is stored as a delta, the encoder then has the delta.
    fn decide<'a>(
        &mut self,
        group: GroupKey,
        object: &NewObject<'_>,
        candidate: Option<StoredWhole<'a>>,
    ) -> Decision<'a> {
        if self.groups.pace_mut(group).is_some_and(Pace::take_skip) {
            return Decision::Whole;
        }
        let decision = match self.groups.reference(group) {
            Some(GroupReference::Candidate(_)) => self.compare_candidate(object, candidate),
            Some(GroupReference::Reference(reference)) => self.compare_reference(reference, object),
            None => None,
        };
        let Some(decision) = decision else { return Decision::Candidate };
        match self.compare(group, &object.identity.name) {
            Verdict::Resembles => decision,
            Verdict::Differs | Verdict::Outdated { .. } => Decision::Candidate,
        }
    }

    /// Makes the candidate the comparand, unless the store has another object at its place by now. Returns how the new
    /// object is stored if it resembles the candidate.
    fn compare_candidate<'a>(
        &mut self,
        object: &NewObject<'_>,
        candidate: Option<StoredWhole<'a>>,
    ) -> Option<Decision<'a>> {
        // Another object may have got the candidate's address, and all deltas to a reference must have one namespace.
        let candidate = candidate.filter(|it| *it.shared.namespace == *object.identity.namespace)?;
        let comparand = &mut self.comparand;
        comparand.reference = None;
        self.decoder.read_whole(candidate, &mut comparand.packed)?;
        (comparand.frame_len, comparand.is_trained) = (candidate.body.len(), candidate.shared.dictionary.is_some());
        Some(Decision::FirstDelta(candidate))
    }

    /// Makes the reference the comparand, unless only the replaced object uses it. A new delta would keep it alive.
    /// Returns how the new object is stored if it resembles the reference.
    fn compare_reference<'a>(&mut self, reference: Arc<Reference>, object: &NewObject<'_>) -> Option<Decision<'a>> {
        let replaced = object.replaced.and_then(|old| old.reference);
        let is_replaced = replaced.is_some_and(|replaced| Arc::ptr_eq(replaced, &reference));
        // `reference` itself accounts for one of the two counts.
        if is_replaced && Arc::strong_count(&reference) == 2 {
            return None;
        }
        let comparand = &mut self.comparand;
        if comparand.reference.as_ref().is_none_or(|known| known.as_ptr() != Arc::as_ptr(&reference)) {
            comparand.reference = None;
            self.decoder.read_whole(reference.object(), &mut comparand.packed)?;
            comparand.reference = Some(Arc::downgrade(&reference));
        }
        let object = reference.object();
        (comparand.frame_len, comparand.is_trained) = (object.body.len(), object.shared.dictionary.is_some());
        Some(Decision::Delta(reference))
    }

    /// Compresses the object as a delta to the comparand, and records the verdict in its group.
    fn compare(&mut self, group: GroupKey, name: &str) -> Verdict {
        let (encoder, comparand) = (self.encoder.get_or_insert_with(Encoder::new), &self.comparand);
        let reference = &comparand.packed.bytes;
        let previous = self.groups.take_due_trial(group, name);
        let trial_len = previous.and_then(|previous| encoder.compress_delta(previous));
        // This follows the trial, because the encoder keeps only the last delta.
        let delta_len = encoder.compress_delta(reference);
        let object_len = encoder.packed().len();
        let comparison = Comparison {
            object_len,
            reference_len: reference.len(),
            reference_frame_len: comparand.frame_len,
            is_trained: comparand.is_trained,
            delta_len: delta_len.unwrap_or(object_len),
            trial_len,
        };
        let verdict = comparison.verdict();
        if let Some(pace) = self.groups.pace_mut(group) {
            pace.record(verdict);
        }
        verdict
    }

    pub(crate) fn set_candidate(&mut self, group: GroupKey, state: StateId, states: &impl StoredStates) {
        self.groups.set_candidate(group, state, |state| states.find_state(state).is_some());
    }

    pub(crate) fn move_candidate(&mut self, group: GroupKey, from: usize, to: usize) {
        self.groups.move_candidate(group, from, to);
    }

    /// Makes the reference of a loaded object the one with which later objects of its group are compared. Repeating
    /// this changes nothing.
    pub(crate) fn learn_reference(&mut self, object: &CompressedObject<'_>, encoding: Encoding) {
        let (CompressedForm::Delta { reference, .. } | CompressedForm::Reference(reference)) = object.form else {
            return;
        };
        if let Some(bytes) = self.decoder.decode(object)
            && let Some(group) = self.group_of_bytes(encoding, &bytes, reference.namespace())
        {
            // A store that was just loaded has no candidates.
            self.groups.set_reference(group, reference, |_| false);
        }
    }

    /// Returns true if a training is due. During a renewal, none is due, so that a store has at most two dictionaries.
    pub(crate) fn is_training_due(&mut self) -> bool {
        let is_trained = self.dictionary().is_some();
        self.training.is_due(is_trained) && self.renewal.is_none()
    }

    /// Returns true if a training pays off. `untrained_len` is the size of what the store has compressed without a
    /// dictionary.
    pub(crate) fn pays_training(&self, untrained_len: usize) -> bool {
        self.dictionary().is_some() || TrainingPolicy::pays_first(untrained_len)
    }

    /// Trains a dictionary, and begins to renew the objects that were compressed with another one or without. If zstd
    /// cannot train one, everything stays as it is.
    pub(crate) fn train(&mut self, samples: impl Iterator<Item = impl AsRef<[u8]>>) {
        let is_trained = self.encoder.get_or_insert_with(Encoder::new).train(samples);
        if is_trained {
            self.begin_renewal();
        } else if self.dictionary().is_none() {
            self.training.record_failure();
        }
        // The samples do not count towards the ratio, because they compress better than later objects.
        self.training.restart_ratio();
    }

    pub(crate) fn begin_renewal(&mut self) {
        (self.renewal, self.renewed) = (Some(Renewal::default()), RenewedReferences::default());
    }

    /// Takes the renewal for its next step, after which [`put_renewal`](Self::put_renewal) puts it back. Returns `None`
    /// if all objects use the current dictionary.
    pub(crate) fn take_renewal(&mut self) -> Option<Renewal> {
        self.renewal.take()
    }

    /// Puts the renewal back until its next step, or `None` if it has visited all objects.
    pub(crate) fn put_renewal(&mut self, renewal: Option<Renewal>) {
        if renewal.is_none() {
            self.renewed = RenewedReferences::default();
        }
        self.renewal = renewal;
    }

    /// Returns true if the object was compressed with an older dictionary or without one.
    pub(crate) fn is_of_old_dictionary(&self, object: &CompressedObject<'_>) -> bool {
        let shared = match object.form {
            CompressedForm::Whole(whole) => whole.shared,
            CompressedForm::Delta { reference, .. } | CompressedForm::Reference(reference) => reference.object().shared,
        };
        self.is_old(shared)
    }

    fn is_old(&self, shared: &NamespaceDictionary) -> bool {
        let is_other = |current| shared.dictionary.as_ref().is_none_or(|known| !Arc::ptr_eq(known, current));
        self.dictionary().is_some_and(is_other)
    }

    /// Compresses an object that is stored whole with the current dictionary. Returns `None` if the result is not
    /// shorter than the object.
    pub(crate) fn compress_again(
        &mut self,
        object: &CompressedObject<'_>,
        encoding: Encoding,
        namespaces: &mut Namespaces,
    ) -> Option<RecompressedWhole<'_>> {
        let elided = ElidedObject { bytes: self.decoder.decode_elided(object)?, wire_len: object.wire_len };
        let bytes = elided.restore(&object.identity)?;
        let group = self.group_of_bytes(encoding, &bytes, &object.identity.namespace);
        self.encoder.get_or_insert_with(Encoder::new).pack(&elided, group.is_some());
        let (body, dictionary) = compress_whole(&mut self.encoder, None)?;
        let shared = self.by_namespace.get(namespaces, &object.identity.namespace, dictionary);
        Some(RecompressedWhole { shared, body, group })
    }

    /// Returns a reference with the same bytes as the reference of a delta, compressed with the current dictionary. The
    /// group and all deltas to the old reference get the same new one. Returns `None` if the result is not shorter than
    /// the reference; the group then has no reference.
    pub(crate) fn renew_reference(
        &mut self,
        delta: &CompressedObject<'_>,
        encoding: Encoding,
        namespaces: &mut Namespaces,
    ) -> Option<Arc<Reference>> {
        let (CompressedForm::Delta { reference: old, .. } | CompressedForm::Reference(old)) = delta.form else {
            return None;
        };
        let group = |compression: &mut Self| {
            compression.group_of_bytes(encoding, &compression.decoder.decode(delta)?, old.namespace())
        };
        if self.is_old(old.object().shared) { self.renew(old, group, namespaces) } else { Some(Arc::clone(old)) }
    }

    fn renew(
        &mut self,
        old: &Arc<Reference>,
        group: impl FnOnce(&mut Self) -> Option<GroupKey>,
        namespaces: &mut Namespaces,
    ) -> Option<Arc<Reference>> {
        if let Some(renewed) = self.renewed.get(old) {
            return Some(renewed);
        }
        let renewed = self.compress_reference_again(old, namespaces);
        if let Some(renewed) = &renewed {
            self.renewed.add(old, renewed);
        }
        if let Some(group) = group(self) {
            self.groups.replace_reference(group, old, renewed.as_ref());
        }
        renewed
    }

    fn compress_reference_again(
        &mut self,
        reference: &Reference,
        namespaces: &mut Namespaces,
    ) -> Option<Arc<Reference>> {
        let object = reference.object();
        let encoder = self.encoder.get_or_insert_with(Encoder::new);
        // The bytes are packed as before, because the deltas refer to exactly these bytes.
        self.decoder.read_whole(object, encoder.packed_mut(object.wire_len))?;
        let (body, dictionary) = compress_whole(&mut self.encoder, None)?;
        let shared = self.by_namespace.get(namespaces, reference.namespace(), dictionary);
        Some(self.decoder.new_reference(StoredWhole { shared: &shared, body, wire_len: object.wire_len }))
    }

    /// Forgets the groups whose objects were deleted, and the shared data of dropped objects.
    pub(crate) fn forget_dropped(&mut self, states: &impl StoredStates) {
        self.groups.forget_dropped(|state| states.find_state(state).is_some());
        self.by_namespace.forget_dropped();
    }

    /// Frees zstd's tables for compression after a list, and the reference that was decompressed last.
    pub(crate) fn free_tables(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.free_tables();
        }
        self.comparand = Comparand::default();
    }

    pub(crate) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.encoder.as_ref().and_then(Encoder::dictionary)
    }

    /// Makes the first of the loaded dictionaries the current one, and begins to renew the objects of the others.
    pub(crate) fn adopt_dictionaries(&mut self, dictionaries: &[Arc<Dictionary>]) {
        // An encoder uses the dictionary that it adopted last.
        for dictionary in dictionaries.iter().rev() {
            self.encoder.get_or_insert_with(Encoder::new).adopt(Arc::clone(dictionary));
        }
        if dictionaries.len() > 1 {
            self.begin_renewal();
        }
    }

    pub(crate) fn reference_bytes(&self) -> usize {
        self.decoder.reference_bytes()
    }

    pub(crate) fn measure(&self) -> CompressionMemory {
        let encoder = self.encoder.as_ref();
        CompressionMemory {
            buffers: encoder.map_or(0, Encoder::buffer_bytes)
                + self.decoder.buffer_bytes()
                + self.comparand.packed.bytes.capacity()
                + self.groups.bytes()
                + self.by_namespace.bytes()
                + self.renewed.bytes(),
            zstd: encoder.map_or(0, Encoder::zstd_bytes) + self.decoder.zstd_bytes(),
        }
    }
}

/// Compresses the packed object by itself, and records its lengths for trainings if the object is new. Returns `None`
/// if the result is not shorter than the object.
fn compress_whole<'e>(
    encoder: &'e mut Option<Encoder>,
    training: Option<&mut TrainingPolicy>,
) -> Option<(&'e [u8], Option<Arc<Dictionary>>)> {
    let encoder = encoder.get_or_insert_with(Encoder::new);
    let (packed_len, wire_len) = (encoder.packed().len(), encoder.wire_len());
    let frame = encoder.compress_whole()?;
    if let Some(training) = training {
        training.record_whole(frame.dictionary.is_some(), packed_len, frame.body.len());
    }
    (frame.body.len() < wire_len as usize).then_some((frame.body, frame.dictionary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    const NAMESPACE: &str = "ns";

    /// Text that compresses badly by itself.
    fn text(seed: u64) -> String {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..1500).map(|_| rng.alphanumeric()).collect()
    }

    fn identity(namespace: &'static str, name: &str) -> Identity<'static> {
        let name = name.to_owned().into();
        Identity { namespace: namespace.into(), name, uid: "u".into(), resource_version: "1".into() }
    }

    /// A store that has this state, or none.
    struct Stored(Option<Whole>);

    impl StoredStates for Stored {
        type Found = Whole;

        fn find_state(&self, _: StateId) -> Option<Whole> {
            self.0.clone()
        }

        fn as_whole(found: &Whole) -> Option<StoredWhole<'_>> {
            Some(found.stored())
        }
    }

    /// An object that was stored whole.
    #[derive(Clone)]
    struct Whole {
        shared: Arc<NamespaceDictionary>,
        body: Vec<u8>,
        bytes: Vec<u8>,
    }

    impl Whole {
        fn stored(&self) -> StoredWhole<'_> {
            let wire_len = self.bytes.len().try_into().unwrap();
            StoredWhole { shared: &self.shared, body: &self.body, wire_len }
        }
    }

    #[derive(Default)]
    struct Writer {
        compression: Compression,
        namespaces: Namespaces,
    }

    impl Writer {
        fn encode(
            &mut self,
            bytes: &[u8],
            identity: &Identity<'_>,
            candidate: Option<&Whole>,
            replaced_reference: Option<&Arc<Reference>>,
        ) -> EncodeOutcome<'_, Whole> {
            let json = format!(r#"{{"metadata":{{"namespace":"{NAMESPACE}","name":"a","generateName":"web-"}}}}"#);
            let meta = ItemRef::new(Encoding::Json, json.as_bytes()).meta().unwrap();
            let replaced = replaced_reference.map(|reference| Replaced { address: 0, reference: Some(reference) });
            let object = NewObject { encoding: Encoding::Json, bytes, meta: &meta, identity, replaced };
            self.compression.encode(&object, &Stored(candidate.cloned()), &mut self.namespaces)
        }

        /// Stores an object that becomes the candidate of its group.
        fn add_candidate(&mut self, bytes: &[u8], identity: &Identity<'_>) -> Whole {
            let (whole, group) = match self.encode(bytes, identity, None, None) {
                EncodeOutcome::Whole { shared, body, candidate_of: Some(group) } => {
                    (Whole { shared, body: body.to_vec(), bytes: bytes.to_vec() }, group)
                }
                _ => panic!("no candidate"),
            };
            self.compression.set_candidate(group, StateId::new(1, 16), &Stored(None));
            whole
        }

        /// Stores the first two objects of a group.
        fn add_reference(&mut self) -> Arc<Reference> {
            let candidate = self.add_candidate(text(1).as_bytes(), &identity(NAMESPACE, "a"));
            let next = format!("{}b", text(1));
            match self.encode(next.as_bytes(), &identity(NAMESPACE, "b"), Some(&candidate), None) {
                EncodeOutcome::Delta { reference, candidate: Some(_), .. } => reference,
                _ => panic!("no reference"),
            }
        }
    }

    #[test]
    fn a_candidate_becomes_the_reference_once_another_object_resembles_it() {
        let mut writer = Writer::default();
        let candidate = writer.add_candidate(text(1).as_bytes(), &identity(NAMESPACE, "a"));
        assert_eq!(writer.compression.reference_bytes(), 0);
        let (next, own) = (format!("{}b", text(1)), identity(NAMESPACE, "b"));
        let EncodeOutcome::Delta { reference, body, candidate: Some(_) } =
            writer.encode(next.as_bytes(), &own, Some(&candidate), None)
        else {
            panic!("no first delta")
        };
        let (body, wire_len) = (body.to_vec(), next.len().try_into().unwrap());
        assert!(body.len() < 100, "{}", body.len());
        let form = CompressedForm::Delta { reference: &reference, body: &body };
        let delta = CompressedObject { form, identity: own.clone(), wire_len };
        assert_eq!(writer.compression.decoder.decode(&delta), Some(next.into_bytes()));
        let (form, wire_len) = (CompressedForm::Reference(&reference), candidate.bytes.len().try_into().unwrap());
        let first = CompressedObject { form, identity: identity(NAMESPACE, "a"), wire_len };
        assert_eq!(writer.compression.decoder.decode(&first), Some(candidate.bytes.clone()));
        assert_eq!(writer.compression.reference_bytes(), Reference::allocated(candidate.body.len()));
        // The next object has the same reference.
        let third = format!("{}c", text(1));
        match writer.encode(third.as_bytes(), &identity(NAMESPACE, "c"), None, None) {
            EncodeOutcome::Delta { reference: same, candidate: None, .. } => assert!(Arc::ptr_eq(&same, &reference)),
            _ => panic!("no delta"),
        }
        drop(reference);
        assert_eq!(writer.compression.reference_bytes(), 0);
    }

    #[test]
    fn an_object_becomes_the_candidate_if_the_group_has_nothing_to_compare_with() {
        let next = format!("{}b", text(1));
        let is_candidate =
            |outcome: &EncodeOutcome<'_, Whole>| matches!(outcome, EncodeOutcome::Whole { candidate_of: Some(_), .. });
        // The candidate was deleted, or another object is at its place.
        for namespace in [None, Some("other")] {
            let mut writer = Writer::default();
            let first = identity(namespace.unwrap_or(NAMESPACE), "a");
            let candidate = writer.add_candidate(text(1).as_bytes(), &first);
            let stored = namespace.map(|_| &candidate);
            assert!(is_candidate(&writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), stored, None)));
        }
        // Only the replaced object uses the reference.
        let mut writer = Writer::default();
        let reference = writer.add_reference();
        assert!(is_candidate(&writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), None, Some(&reference))));
        let other = Arc::clone(&reference);
        let outcome = writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), None, Some(&reference));
        assert!(matches!(outcome, EncodeOutcome::Delta { .. }));
        // All deltas were deleted.
        drop(outcome);
        drop((reference, other));
        assert!(is_candidate(&writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), None, None)));
    }

    #[test]
    fn an_object_that_skips_the_comparison_leaves_the_reference() {
        let mut writer = Writer::default();
        let reference = writer.add_reference();
        for (seed, is_candidate) in [(2, true), (3, true), (4, true), (5, false)] {
            // As the writer does not record the candidates, the group keeps its reference.
            let outcome = writer.encode(text(seed).as_bytes(), &identity(NAMESPACE, "x"), None, None);
            let EncodeOutcome::Whole { candidate_of, .. } = outcome else { panic!("{seed} is no whole object") };
            assert_eq!(candidate_of.is_some(), is_candidate, "{seed}");
        }
        let next = format!("{}b", text(1));
        let outcome = writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), None, None);
        assert!(matches!(outcome, EncodeOutcome::Delta { reference: same, .. } if Arc::ptr_eq(&same, &reference)));
    }

    #[test]
    fn an_object_that_compression_does_not_shorten_is_incompressible() {
        let mut writer = Writer::default();
        assert!(matches!(
            writer.encode(b"short", &identity(NAMESPACE, "a"), None, None),
            EncodeOutcome::Incompressible
        ));
    }

    #[test]
    fn reports_what_its_parts_allocate() {
        let mut namespaces = Namespaces::default();
        let names: Vec<_> = (0..1000).map(|i| namespaces.intern(&format!("ns-{i}"))).collect();
        let mut shared = Vec::with_capacity(names.len());
        let create = || {
            let mut writer = Writer::default();
            let Writer { compression, .. } = &mut writer;
            shared.extend(names.iter().map(|name| compression.by_namespace.get(&mut namespaces, name, None)));
            let bytes: String = (0..30).map(text).collect();
            let candidate = writer.add_candidate(bytes.as_bytes(), &identity(NAMESPACE, "a"));
            let next = format!("{bytes}b");
            let EncodeOutcome::Delta { reference, .. } =
                writer.encode(next.as_bytes(), &identity(NAMESPACE, "b"), Some(&candidate), None)
            else {
                panic!("no reference")
            };
            let Compression { decoder, renewed, .. } = &mut writer.compression;
            (0..1000).for_each(|_| renewed.add(&decoder.new_reference(reference.object()), &reference));
            (writer, reference)
        };
        let report = |(Writer { compression, .. }, _): &(Writer, _)| {
            compression.measure().buffers + compression.reference_bytes()
        };
        let (writer, _) = assert_reports_what_it_allocates(create, report);
        let zstd = writer.compression.measure().zstd;
        assert!((10_000..16 << 20).contains(&zstd), "{zstd}");
    }
}
