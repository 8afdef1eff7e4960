#![no_main]

#[path = "../../crates/views/tests/views/generated.rs"]
#[allow(unused_variables, reason = "some messages have no kinds")]
mod generated;
#[path = "../../crates/views/tests/views/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../../crates/views/tests/views/pb.rs"]
mod pb;
// Not in the library, because the library's own tests include that, and must not depend on the crate of views.
#[path = "../src/views.rs"]
mod views;

libfuzzer_sys::fuzz_target!(|data: &[u8]| views::run(data));
