//! A reference that several benches share, the time of the processor, and access to criterion's results, for ratios
//! within one run.

use std::hint::black_box;
use std::path::PathBuf;

use criterion::BenchmarkGroup;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Measures copying the body in chunks, under the name `memcpy-CHUNK`.
pub fn memcpy(group: &mut BenchmarkGroup<'_, WallTime>, body: &[u8], chunk: usize) {
    let mut copy = vec![0; body.len()];
    group.bench_function(format!("memcpy-{chunk}"), |bencher| {
        bencher.iter(|| {
            for (from, to) in black_box(body).chunks(chunk).zip(copy.chunks_mut(chunk)) {
                to.copy_from_slice(from);
            }
            black_box(&mut copy);
        });
    });
}

/// Returns the median in nanoseconds; `None` if the benchmark was filtered out.
pub fn median(group: &str, name: &str) -> Option<f64> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "../../target".into(), PathBuf::from);
    let path = target.join(format!("criterion/{group}/{name}/new/estimates.json"));
    let estimates: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

/// Measures the time that the processor spends in the calling thread, in nanoseconds.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    fn end(&self, start: u64) -> u64 {
        self.start() - start
    }

    fn add(&self, a: &u64, b: &u64) -> u64 {
        a + b
    }

    fn zero(&self) -> u64 {
        0
    }

    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of less than a month")]
    fn to_f64(&self, value: &u64) -> f64 {
        *value as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
