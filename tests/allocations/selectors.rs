//! The memory that parsing a selector allocates grows with its text, not with the square of it.

use allocation_counter::measure;
use listwatch::{FieldSelector, LabelSelector};

#[test]
fn long_selectors_are_parsed_in_memory_in_proportion_to_them() {
    let text = |term: fn(u32) -> String| (0..9000).rev().map(term).collect::<Vec<_>>().join(",");
    // The message of the one error that is reported quotes the whole selector.
    for (selector, is_valid) in [
        (text(|at| format!("f{at:04}")), false),
        (text(|at| format!("f{at:04}=1")), true),
        (text(|at| format!("a=\\{at}")), false),
    ] {
        let mut parsed = None;
        let allocated = measure(|| parsed = Some(selector.parse::<FieldSelector>().is_ok()));
        assert_eq!(parsed, Some(is_valid));
        assert!(allocated.bytes_total < 40 * selector.len() as u64, "{} bytes", allocated.bytes_total);
    }
    let labels = text(|at| format!("l{at:04}"));
    let allocated = measure(|| assert!(labels.parse::<LabelSelector>().is_ok()));
    assert!(allocated.bytes_total < 100 * labels.len() as u64, "{} bytes", allocated.bytes_total);
}
