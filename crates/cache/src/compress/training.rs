//! When a dictionary is trained, and on which samples.

use std::hint::black_box;
use std::mem;
use std::ops::RangeInclusive;

use crate::compress::dictionary::Dictionary;
use crate::compress::pack::{KnownTexts, PackedObject, Packer};

/// The number of samples whose length zstd's dictionary has, so that a dictionary of small objects takes less memory.
const TRAINED_SAMPLES: usize = 32;
/// The bounds of this length. The upper one is zstd's default: where objects have delta groups, a dictionary mostly
/// compresses references, and 512 KiB would save 3 to 9 % of them, which is less than its copies take. With 64 KiB,
/// Pods without a group become a tenth longer.
const TRAINED_LEN: RangeInclusive<usize> = 16 << 10..=112_640;
/// The length of the whole samples at the end of a dictionary.
///
/// zstd chooses pieces, and leaves out the parts that other pieces contain, so an object without random texts then
/// consists of many pieces. Whole samples save 46 % of Certificates, while other kinds take about the same. 32 KiB
/// saves no more.
const WHOLE_LEN: usize = 16 << 10;
/// The longest sample, which is the beginning of an object, and the most bytes of all samples together.
const SAMPLE_LEN: usize = 128 << 10;
const MOST_SAMPLES_LEN: usize = 4 << 20;
/// The bytes and the number of samples for a training, unless the collection is smaller. Always using 4 MiB would save
/// up to 3 %, but the training would take two to four times as long.
const ENOUGH_SAMPLES_LEN: usize = 1 << 20;
const ENOUGH_SAMPLES: usize = 256;
/// The first dictionary is trained once objects and references that were compressed without one take this many bytes. A
/// dictionary saves at least half of them, and takes up to 180 kB. A list begins with a few namespaces and workloads,
/// so a later training has samples from more of the collection.
const UNTRAINED: usize = 1536 << 10;
pub(crate) const FEW_SAMPLES: usize = 64;
/// The number of compressed objects over which the ratio is measured.
const WINDOW: u32 = 4096;
/// The ratio has drifted when it exceeds 5 / 4 of the ratio after the training.
const DRIFT: (u64, u64) = (5, 4);

/// Decides when a dictionary is trained, based on the objects that were stored whole.
pub(super) struct TrainingPolicy {
    /// The bytes compressed without a dictionary since the last attempt to train one. The second number leads to the
    /// next attempt; each failure doubles it.
    untrained: usize,
    until_attempt: usize,
    window: Window,
    /// The first window after the training.
    baseline: Option<Window>,
}

#[derive(Clone, Copy, Default)]
struct Window {
    objects: u32,
    wire: u64,
    compressed: u64,
}

impl Default for TrainingPolicy {
    fn default() -> Self {
        Self { untrained: 0, until_attempt: UNTRAINED, window: Window::default(), baseline: None }
    }
}

impl TrainingPolicy {
    pub(super) fn record_whole(&mut self, is_trained: bool, wire_len: usize, compressed_len: usize) {
        self.window.objects += 1;
        self.window.wire += wire_len as u64;
        self.window.compressed += compressed_len as u64;
        if !is_trained {
            self.untrained += compressed_len.min(wire_len);
        }
    }

    pub(super) fn is_due(&mut self, is_trained: bool) -> bool {
        if is_trained {
            return self.has_drifted();
        }
        let is_due = self.untrained >= self.until_attempt;
        if is_due {
            self.untrained = 0;
        }
        is_due
    }

    /// Returns true if a first dictionary pays off, because objects may have changed or left since they were recorded.
    pub(super) fn pays_first(untrained: usize) -> bool {
        untrained >= UNTRAINED
    }

    pub(super) fn record_failure(&mut self) {
        self.until_attempt *= 2;
    }

    /// Measures the ratio after a training from now on.
    pub(super) fn restart_ratio(&mut self) {
        self.window = Window::default();
        self.baseline = None;
    }

    /// Returns true if objects compress so much worse than after the training that another training is due.
    fn has_drifted(&mut self) -> bool {
        if self.window.objects < WINDOW {
            return false;
        }
        let window = mem::take(&mut self.window);
        let Window { wire, compressed, .. } = *self.baseline.get_or_insert(window);
        // This compares compressed / wire of this window with compressed / wire of the first window.
        let (drifted, allowed) = DRIFT;
        window.compressed * wire * allowed > compressed * window.wire * drifted
    }
}

/// Trains a dictionary. Returns `None` if zstd cannot, because the samples are too few or have nothing in common.
pub(super) fn train(samples: impl Iterator<Item = impl AsRef<[u8]>>) -> Option<Dictionary> {
    // A buffer that grows would raise glibc's thresholds, after which free memory stays in the heap.
    let (mut all, mut lens) = (Vec::with_capacity(MOST_SAMPLES_LEN), Vec::new());
    for sample in samples {
        let sample = sample.as_ref();
        let sample = sample.get(..SAMPLE_LEN).unwrap_or(sample);
        if all.len() + sample.len() > MOST_SAMPLES_LEN {
            break;
        }
        all.extend_from_slice(sample);
        lens.push(sample.len());
    }
    let known = KnownTexts::shared_by(split(&all, &lens));
    // The samples are packed in place, because packing makes none longer.
    let (mut packer, mut object) = (Packer::default(), PackedObject::default());
    let (mut from, mut to) = (0, 0);
    for len in &mut lens {
        packer.pack(all.get(from..from + *len)?, &known, &mut object);
        from += *len;
        *len = object.text_len;
        all.get_mut(to..to + *len)?.copy_from_slice(object.text());
        to += *len;
    }
    all.truncate(to);
    let len = TRAINED_SAMPLES * (all.len() / lens.len().max(1));
    let len = len.clamp(*TRAINED_LEN.start(), *TRAINED_LEN.end());
    let mut dictionary = Vec::with_capacity(len + WHOLE_LEN);
    dictionary.resize(len, 0);
    let len = zstd_safe::train_from_buffer(&mut *dictionary, &all, &lens).ok()?;
    dictionary.truncate(len);
    let choice = SampleChoice { len: all.len() as u64, samples_len: WHOLE_LEN as u64 };
    for (sample, _) in split(&all, &lens).zip(0..).filter(|(_, place)| choice.has(*place)) {
        if dictionary.len() + sample.len() <= len + WHOLE_LEN {
            dictionary.extend_from_slice(sample);
        }
    }
    Dictionary::new(&dictionary)
}

/// Returns consecutive samples.
fn split<'a>(all: &'a [u8], lens: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = all;
    lens.iter().map_while(move |len| rest.split_off(..*len))
}

/// Decides which objects of a collection are samples.
#[derive(Clone, Copy)]
pub(crate) struct SampleChoice {
    len: u64,
    samples_len: u64,
}

impl SampleChoice {
    /// Chooses samples of a collection of `objects` objects, which have `len` bytes together.
    pub(crate) fn of(objects: usize, len: usize) -> Self {
        let few = (len / objects.max(1)).saturating_mul(ENOUGH_SAMPLES);
        let samples_len = few.clamp(ENOUGH_SAMPLES_LEN, MOST_SAMPLES_LEN);
        Self { len: len as u64, samples_len: samples_len as u64 }
    }

    /// Returns true if the object at this place is a sample. The places of samples are spread over the collection
    /// without a period, because the objects may have one.
    pub(crate) fn has(self, place: u32) -> bool {
        u64::from(place.wrapping_mul(0x9e37_79b9)) * self.len <= self.samples_len << 32
    }
}

/// Makes glibc return the free memory at the end of its heap.
///
/// A training frees blocks of 4 MiB. From then on, glibc keeps up to 8 MiB at the end of the heap (`M_TRIM_THRESHOLD`
/// in mallopt(3)), unless a program frees more than that at once. This function does so, with blocks that are shorter
/// than `M_MMAP_THRESHOLD` and whose pages are not used. It takes 0.5 ms. A compressed store of 20,000 Leases then
/// takes 4.0 MB of resident memory instead of 9.6 MB. Other allocators do nothing but allocate and free the blocks.
pub(super) fn trim_heap() {
    const BLOCK: usize = 100 << 10;
    const BLOCKS: usize = 128;
    drop(black_box((0..BLOCKS).map(|_| Vec::<u8>::with_capacity(BLOCK)).collect::<Vec<_>>()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_is_due_when_enough_was_compressed_without_a_dictionary() {
        let mut training = TrainingPolicy::default();
        for attempt in 0..3 {
            let mut len = 0;
            while !training.is_due(false) {
                // A frame that is longer than the object counts as the object, which is then stored encoded.
                training.record_whole(false, 1000, 1200);
                len += 1000;
            }
            assert_eq!(len, (UNTRAINED << attempt).div_ceil(1000) * 1000);
            training.record_failure();
        }
    }

    #[test]
    fn another_training_is_due_when_the_ratio_has_grown_by_more_than_a_quarter() {
        let mut training = TrainingPolicy::default();
        for (compressed, is_due) in [(100, false), (100, false), (125, false), (126, true), (80, false)] {
            (0..WINDOW).for_each(|_| training.record_whole(true, 1000, compressed));
            assert_eq!(training.is_due(true), is_due, "{compressed}");
        }
        training.restart_ratio();
        // A part of a window says nothing.
        training.record_whole(true, 1000, 100);
        assert!(!training.is_due(true));
        (1..WINDOW).for_each(|_| training.record_whole(true, 1000, 500));
        assert!(!training.is_due(true));
        (0..WINDOW).for_each(|_| training.record_whole(true, 1000, 900));
        assert!(training.is_due(true));
    }

    #[test]
    fn samples_are_spread_over_the_collection() {
        // The number of objects, and the length of each.
        for (objects, len) in [(1, 100), (100, 1000), (10_000, 50), (20_000, 1000), (20_000, 20_000), (400_000, 1000)] {
            let choice = SampleChoice::of(objects as usize, objects as usize * len);
            let samples = |places: std::ops::Range<u32>| places.filter(|place| choice.has(*place)).count();
            let expected = (len * ENOUGH_SAMPLES).clamp(ENOUGH_SAMPLES_LEN, MOST_SAMPLES_LEN) / len;
            if objects as usize <= expected {
                assert_eq!(samples(0..objects), objects as usize, "{objects} of {len}");
                continue;
            }
            // A tenth more or less, also of each quarter.
            let is_near = |count: usize, expected: usize| count.abs_diff(expected) <= expected / 10 + 2;
            assert!(is_near(samples(0..objects), expected), "{objects} of {len}: {}", samples(0..objects));
            for quarter in 0..4 {
                let count = samples(quarter * objects / 4..(quarter + 1) * objects / 4);
                assert!(is_near(count, expected / 4), "{objects} of {len}, quarter {quarter}: {count}");
            }
            // Objects with a period of 10: each remainder has samples.
            for remainder in 0..10 {
                let count = (0..objects).filter(|place| place % 10 == remainder && choice.has(*place)).count();
                assert!(count > expected / 20, "{objects} of {len}, remainder {remainder}: {count}");
            }
        }
    }

    #[test]
    fn an_empty_collection_has_a_choice() {
        assert!(SampleChoice::of(0, 0).has(7));
    }

    #[test]
    fn a_dictionary_is_trained_on_a_part_of_many_samples_and_ends_with_whole_ones() {
        const LEN: usize = 2048;
        let sample = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let words: Vec<_> = (0..300).map(|_| format!("word-{:x}", random.u16(..4000))).collect();
            words.join(" ").as_bytes()[..LEN].to_vec()
        };
        let mut taken = 0;
        let samples = (0..3000).map(|seed| {
            taken += 1;
            sample(seed)
        });
        let dictionary = train(samples).unwrap().bytes();
        assert_eq!(taken, MOST_SAMPLES_LEN / LEN + 1);
        let most = TRAINED_SAMPLES * LEN + WHOLE_LEN;
        assert!((most - WHOLE_LEN..=most).contains(&dictionary.len()), "{} of {most}", dictionary.len());
        assert!((0..3000).any(|seed| dictionary.ends_with(&sample(seed))));
    }
}
