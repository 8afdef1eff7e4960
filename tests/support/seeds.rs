//! Randomized tests: a seed determines each case, and a failure prints it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Returns the seed of tests that draw random values: `PROPTEST_RNG_SEED`, for which `.cargo/config.toml` has a
/// default. It prints the seed, which libtest shows if the test fails.
pub fn seed() -> u64 {
    let seed = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().expect("a seed is a number"));
    println!("PROPTEST_RNG_SEED={seed}");
    seed
}

/// Returns the seed in `SEED`, which runs that case alone.
pub fn only() -> Option<u64> {
    std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"))
}

/// Runs a test with this number of seeds, or only with the seed in `SEED`. Returns true if it ran all.
pub fn each_seed(seeds: u64, mut run: impl FnMut(u64)) -> bool {
    let only = only();
    for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("failed with SEED={seed}");
            resume_unwind(panic);
        }
    }
    only.is_none()
}
