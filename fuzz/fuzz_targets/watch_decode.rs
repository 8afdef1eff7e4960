#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| listwatch_fuzz::watch_decode::run(data));
