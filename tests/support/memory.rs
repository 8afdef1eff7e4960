//! The memory of this process.

use std::fs;

/// The memory of this process in bytes, as Linux counts it: `VmRSS`, resident now, or `VmHWM`, its peak.
#[cfg(target_os = "linux")]
pub fn memory(of: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the status of the process");
    let line =
        status.lines().find_map(|line| line.strip_prefix(of)?.strip_prefix(':')).expect("the value in the status");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kilobytes") * 1024
}
