#![no_main]

// Not in the library, because the tests of the core include that, and must not depend on other crates.
#[path = "../src/etcd_file.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
