//! The metrics of the process, with the names that all client libraries of Prometheus have.
//!
//! Source: `writing_clientlibs.md` of the Prometheus documentation, "Process metrics".

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sysinfo::{Process, ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

/// What the operating system knows of this process.
pub(super) struct ProcessMetrics {
    cpu: Duration,
    resident_bytes: u64,
    virtual_bytes: u64,
    /// Seconds since 1970.
    started: u64,
    open_files: Option<usize>,
    max_files: Option<usize>,
}

impl ProcessMetrics {
    /// Reads the metrics, or returns `None` where the operating system does not have them.
    pub(super) fn read() -> Option<Self> {
        let id = get_current_pid().ok()?;
        let mut system = System::new();
        let kind = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), false, kind);
        let process = system.process(id)?;
        Some(Self {
            cpu: Duration::from_millis(process.accumulated_cpu_time()),
            resident_bytes: process.memory(),
            virtual_bytes: process.virtual_memory(),
            started: process.start_time(),
            open_files: process.open_files(),
            max_files: Process::open_files_limit(process),
        })
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let Self { cpu, resident_bytes, virtual_bytes, started, open_files, max_files } = *self;
        let seconds = Counter::<f64, AtomicU64>::default();
        seconds.inc_by(cpu.as_secs_f64());
        registry.register("process_cpu_seconds", "Total user and system CPU time spent in seconds", seconds);
        let count = |files: Option<usize>| files.and_then(|files| u64::try_from(files).ok());
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size in bytes", Some(resident_bytes)),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes", Some(virtual_bytes)),
            ("process_start_time_seconds", "Start time of the process since unix epoch in seconds", Some(started)),
            ("process_open_fds", "Number of open file descriptors", count(open_files)),
            ("process_max_fds", "Maximum number of open file descriptors", count(max_files)),
        ] {
            if let Some(value) = value {
                let gauge = Gauge::<i64>::default();
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
                registry.register(name, help, gauge);
            }
        }
    }
}
