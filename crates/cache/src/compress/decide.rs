//! The rule by which an object is stored as a delta. It has no data and no state: lengths go in, and a verdict comes
//! out.

/// The bytes that a delta must save, and also a quarter of the length that the dictionary is expected to leave.
const SAVED: usize = 64;

/// The lengths of an object, of its reference, and of the delta between them.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    pub(super) object_len: usize,
    pub(super) reference_len: usize,
    /// The length of the reference, compressed by itself.
    pub(super) reference_frame_len: usize,
    /// True if the reference was compressed with a dictionary.
    pub(super) is_trained: bool,
    pub(super) delta_len: usize,
    /// The length of the delta to the previous object of the group, if a trial was due.
    pub(super) trial_len: Option<usize>,
}

/// What the lengths say about an object and its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object resembles the reference: it is stored as the delta.
    Resembles,
    /// The object does not resemble the reference: it is stored whole, and the next objects are compared with it.
    Differs,
    /// The previous object would be a much better reference. The object is stored whole, and the next objects are
    /// compared with it.
    Outdated {
        /// True if the object resembles the reference anyway.
        resembles: bool,
    },
}

impl Comparison {
    pub(super) fn verdict(&self) -> Verdict {
        let resembles = self.resembles();
        if self.trial_len.is_some_and(|trial| 4 * trial < 3 * self.delta_len) {
            Verdict::Outdated { resembles }
        } else if resembles {
            Verdict::Resembles
        } else {
            Verdict::Differs
        }
    }

    fn resembles(&self) -> bool {
        let expected = self.expected_whole_len();
        self.delta_len + SAVED <= expected && 4 * self.delta_len <= 3 * expected
    }

    /// Returns the length that the object is expected to have when it is stored whole.
    fn expected_whole_len(&self) -> usize {
        let like_reference = self.reference_frame_len.saturating_mul(self.object_len) / self.reference_len.max(1);
        // A dictionary leaves about half of the length that an object has without one, and this object may still get
        // one.
        if self.is_trained { like_reference } else { like_reference / 2 }
    }
}

impl Verdict {
    pub(super) fn resembles(self) -> bool {
        matches!(self, Self::Resembles | Self::Outdated { resembles: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object and a reference have 1000 bytes. A dictionary compresses each to 400.
    const TRAINED: Comparison = Comparison {
        object_len: 1000,
        reference_len: 1000,
        reference_frame_len: 400,
        is_trained: true,
        delta_len: 100,
        trial_len: None,
    };

    #[test]
    fn an_object_resembles_a_reference_if_the_delta_saves_a_quarter_and_64_bytes() {
        let untrained = Comparison { reference_frame_len: 800, is_trained: false, ..TRAINED };
        let short = Comparison { reference_frame_len: 100, ..TRAINED };
        let longer = Comparison { object_len: 2000, ..TRAINED };
        for (comparison, longest_delta) in [
            (TRAINED, 300),
            // Half of it is left with a dictionary.
            (untrained, 300),
            (longer, 600),
            // 64 bytes are more than a quarter.
            (short, 36),
        ] {
            let verdict = |delta_len| Comparison { delta_len, ..comparison }.verdict();
            assert_eq!(verdict(longest_delta), Verdict::Resembles, "{longest_delta}");
            assert_eq!(verdict(longest_delta + 1), Verdict::Differs, "{longest_delta}");
            assert_eq!(verdict(0), Verdict::Resembles);
        }
    }

    #[test]
    fn an_empty_or_tiny_object_differs_from_any_reference() {
        for comparison in [
            Comparison { object_len: 0, delta_len: 0, ..TRAINED },
            Comparison { object_len: 0, reference_len: 0, reference_frame_len: 0, delta_len: 0, ..TRAINED },
            Comparison { reference_frame_len: 63, delta_len: 0, ..TRAINED },
        ] {
            assert_eq!(comparison.verdict(), Verdict::Differs);
        }
    }

    #[test]
    fn a_reference_is_outdated_if_the_delta_to_the_previous_object_is_a_quarter_shorter() {
        for (delta_len, trial_len, expected) in [
            (100, 75, Verdict::Resembles),
            (100, 74, Verdict::Outdated { resembles: true }),
            (300, 0, Verdict::Outdated { resembles: true }),
            (301, 225, Verdict::Outdated { resembles: false }),
            (301, 226, Verdict::Differs),
            // As good as the reference.
            (100, 100, Verdict::Resembles),
        ] {
            let verdict = Comparison { delta_len, trial_len: Some(trial_len), ..TRAINED }.verdict();
            assert_eq!(verdict, expected, "{delta_len} {trial_len}");
            assert_eq!(verdict.resembles(), delta_len <= 300);
        }
    }
}
