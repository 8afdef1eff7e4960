//! The ways of listing, the list, and what is measured.

use std::time::Duration;

use listwatch_testserver::{Synthesizer, recorded_pods};

/// How the client reads the list, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListMethod {
    FullBuffer,
    Drop,
    KeepPods,
    KeepBytes,
}

/// The measurements of one method.
pub struct Measurement {
    pub method: ListMethod,
    pub wall: Duration,
    pub first_item: Duration,
    /// User and system time of the client.
    pub cpu: Option<[Duration; 2]>,
    pub peak: u64,
    /// Growth of resident memory until the list was complete, with all kept items in memory.
    pub growth: u64,
    pub memory: Vec<MemorySample>,
}

/// A method that needs more memory than is available.
pub struct SkippedMethod {
    pub method: ListMethod,
    pub needed: u64,
    pub available: u64,
}

/// Resident memory of the client at a time after the request.
pub struct MemorySample {
    pub at: Duration,
    pub resident: u64,
}

/// The list that the server sends.
pub struct ListedPods {
    pub pods: u32,
    pub bytes: u64,
    pub recorded: u32,
}

impl ListedPods {
    pub fn new(pods: u32) -> anyhow::Result<Self> {
        let recorded = recorded_pods();
        let bytes = Synthesizer::new(&recorded, pods)?.len();
        let mut recorded = listwatch::ListReader::new::<[u8]>(recorded.as_slice());
        let count = recorded.by_ref().try_fold(0, |count, item| item.map(|_| count + 1))?;
        Ok(Self { pods, bytes, recorded: count })
    }
}

impl ListMethod {
    /// The order of the runs, by growing memory.
    ///
    /// Recently used memory is faster to allocate, above all in a virtual machine. This crate must not benefit from
    /// that.
    pub const IN_TURN: [Self; 4] = [Self::Drop, Self::KeepBytes, Self::KeepPods, Self::FullBuffer];

    pub fn name(self) -> &'static str {
        match self {
            Self::FullBuffer => "full buffer",
            Self::Drop => "listwatch, drop",
            Self::KeepPods => "listwatch, Box<Pod>",
            Self::KeepBytes => "listwatch, Box<[u8]>",
        }
    }

    /// Returns the memory that the method needs: measured in tenths of the body, plus a margin of a tenth.
    pub fn memory_needed(self, list: &ListedPods) -> u64 {
        let tenths = match self {
            Self::FullBuffer => 81,
            Self::Drop => 0,
            Self::KeepPods => 70,
            Self::KeepBytes => 11,
        };
        list.bytes / 10 * tenths
    }
}
