//! Memory, as the operating system reports it.

use std::time::Duration;

use sysinfo::{MemoryRefreshKind, System};

/// Returns the bytes that this process and its children may still allocate.
pub fn available_memory() -> u64 {
    let mut system = System::new();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let available = system.available_memory();
    system.cgroup_limits().map_or(available, |limits| available.min(limits.free_memory))
}

/// Returns the peak of a process's resident memory in bytes, if the operating system records it.
#[cfg(target_os = "linux")]
pub fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))?;
    Some(kilobytes.parse::<u64>().ok()? * 1024)
}

/// Returns the user and system time of a process so far, if the operating system reports them.
#[cfg(target_os = "linux")]
pub fn cpu_times(process: u32) -> Option<[Duration; 2]> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name is in parentheses, and may contain parentheses and spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    // The kernel reports ticks of 10 ms, whatever its own timer frequency is.
    let mut ticks = || Some(Duration::from_millis(fields.next()?.parse::<u64>().ok()? * 10));
    Some([ticks()?, ticks()?])
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_times(_process: u32) -> Option<[Duration; 2]> {
    None
}

#[cfg(not(target_os = "linux"))]
pub fn peak_memory(_process: u32) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn reads_the_cpu_times_of_a_process() {
        let start = std::time::Instant::now();
        let before = cpu_times(std::process::id()).unwrap();
        let used = |times: [Duration; 2]| times.iter().sum::<Duration>();
        while used(cpu_times(std::process::id()).unwrap()) < used(before) + Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(cpu_times(u32::MAX), None);
    }

    #[test]
    fn reads_the_peak_memory_of_a_process_in_bytes() {
        let held = vec![1_u8; 64 << 20];
        let peak = peak_memory(std::process::id()).unwrap();
        assert!((64 << 20..64 << 30).contains(&peak), "{peak}");
        assert_eq!(std::hint::black_box(held).len(), 64 << 20);
        assert_eq!(peak_memory(u32::MAX), None);
    }
}
