//! What criterion measured, for ratios within one run.

use std::path::Path;

/// In nanoseconds; `None` when the benchmark was filtered out.
pub fn median(group: &str, name: &str) -> Option<f64> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let path = Path::new(&target).join(format!("criterion/{group}/{name}/new/estimates.json"));
    let estimates: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}
