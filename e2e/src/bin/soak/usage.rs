//! The resources of the process, measured at quiet points, when no list runs and all its connections are closed.

use std::fmt;
use std::fs;

use cap::Cap;

use crate::memory::memory;

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// The resources in use at one quiet point.
#[derive(Clone, Copy)]
pub struct Usage {
    /// Bytes of memory that are allocated.
    allocated: u64,
    /// Bytes of memory that are resident according to the system, with memory that the allocator keeps.
    resident: u64,
    descriptors: u64,
}

/// How far a quiet point may exceed the first. The reflectors always have connections, up to two each, of half a MB and
/// three descriptors; the connections of a mirror's readers have both ends in this process. Without them, the allocated
/// memory differed by less than 1 kB, and the descriptors were equal. Resident memory also includes C code, and what
/// the allocator keeps of up to four concurrent lists of 20 to 40 MB, in an arena for each thread: it grew by 30 MB in
/// 3 minutes.
const SLACK: Usage = Usage { allocated: 6 << 20, resident: 128 << 20, descriptors: 32 };

/// How far every point of the last third may exceed all points of the first third: it detects slow leaks sooner.
const GROWTH: Usage = Usage { allocated: 16 << 10, resident: 32 << 20, descriptors: 0 };

/// The thirds are compared only if there are at least this many points.
const FEWEST: usize = 9;

impl Usage {
    /// Measures the usage, and subtracts `accounted` from the allocated bytes.
    pub fn now(accounted: usize) -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").expect("Linux lists the open files").count() as u64;
        Self {
            allocated: ALLOCATOR.allocated().saturating_sub(accounted) as u64,
            resident: memory("VmRSS"),
            descriptors,
        }
    }

    fn fields(self) -> [(&'static str, u64); 3] {
        [("allocated", self.allocated), ("resident", self.resident), ("descriptors", self.descriptors)]
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allocated, resident, descriptors } = self;
        write!(f, "{} kB allocated, {} kB resident, {descriptors} descriptors", allocated >> 10, resident >> 10)
    }
}

/// Describes what grew over the quiet points after the warm-up.
pub fn leaks(points: &[Usage]) -> Vec<String> {
    let mut leaks = Vec::new();
    for (i, ((name, slack), (_, growth))) in SLACK.fields().into_iter().zip(GROWTH.fields()).enumerate() {
        let values: Vec<u64> = points.iter().map(|point| point.fields()[i].1).collect();
        let Some((&first, later)) = values.split_first() else { continue };
        if let Some(most) = later.iter().max().filter(|most| **most > first + slack) {
            leaks.push(format!("{name}: {most} exceeds the first quiet point, {first}, by over {slack}"));
        }
        let third = values.len() / 3;
        let (most, least) = (values[..third].iter().max(), values[values.len() - third..].iter().min());
        if let (Some(most), Some(least)) = (most, least)
            && values.len() >= FEWEST
            && *least > most + growth
        {
            leaks.push(format!("{name} grows: at most {most} in the first third, at least {least} in the last"));
        }
    }
    leaks
}
