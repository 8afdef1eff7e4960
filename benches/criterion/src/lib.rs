//! A reference that several benches share, and access to criterion's results, for ratios within one run.

use std::hint::black_box;
use std::path::PathBuf;

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;

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
