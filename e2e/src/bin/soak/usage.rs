//! What the process uses, at points where no list is under way and no connection open.

use std::fmt;
use std::fs;

use cap::Cap;

use crate::support::memory;

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Of one quiet point.
#[derive(Clone, Copy)]
pub struct Usage {
    /// Bytes of memory that are allocated.
    allocated: u64,
    /// Bytes of memory that are resident: the system's view, with what the allocator keeps.
    resident: u64,
    descriptors: u64,
}

/// How far a quiet point may be above the first. The reflectors have connections all the time, up to two each, of half a MB and
/// three descriptors; but for them, what Rust code has allocated came out the same to 1 kB, with the same descriptors. What is
/// resident has the memory of C code too, and what the allocator keeps of up to four lists at once of 20 to 40 MB, in an arena for
/// each thread: 30 MB more after 3 minutes were seen.
const SLACK: Usage = Usage { allocated: 3 << 20, resident: 128 << 20, descriptors: 12 };

/// How far each point of the last third may be above all of the first, which shows slow leaks sooner.
const GROWTH: Usage = Usage { allocated: 16 << 10, resident: 32 << 20, descriptors: 0 };

/// With fewer points the thirds say nothing.
const FEWEST: usize = 9;

impl Usage {
    /// Without so many bytes, which are accounted for.
    pub fn now(accounted: usize) -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").expect("Linux says which files are open").count() as u64;
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

/// What grew over the quiet points after the warm-up.
pub fn leaks(points: &[Usage]) -> Vec<String> {
    let mut leaks = Vec::new();
    for (i, ((name, slack), (_, growth))) in SLACK.fields().into_iter().zip(GROWTH.fields()).enumerate() {
        let values: Vec<u64> = points.iter().map(|point| point.fields()[i].1).collect();
        let Some((&first, later)) = values.split_first() else { continue };
        if let Some(most) = later.iter().max().filter(|most| **most > first + slack) {
            leaks.push(format!("{name}: {most} is over {first}, that of the first quiet point, and {slack}"));
        }
        let third = values.len() / 3;
        let (most, least) = (values[..third].iter().max(), values[values.len() - third..].iter().min());
        if let (Some(most), Some(least)) = (most, least)
            && values.len() >= FEWEST
            && *least > most + growth
        {
            leaks.push(format!("{name}: grows: {most} at most in the first third, {least} at least in the last"));
        }
    }
    leaks
}
