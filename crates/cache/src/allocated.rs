//! What values allocate, for tests of what they report.

use allocation_counter::measure;

/// Creates a value, and checks that it reports the bytes that it allocates, within 0.5 %.
#[track_caller]
pub(crate) fn assert_reports_what_it_allocates<T>(create: impl FnOnce() -> T, report: impl FnOnce(&T) -> usize) -> T {
    let mut created = None;
    let counted = measure(|| created = Some(create()));
    let (value, allocated) = (created.unwrap(), usize::try_from(counted.bytes_current).unwrap());
    let reported = report(&value);
    assert!(reported.abs_diff(allocated) * 200 <= allocated, "{reported} of {allocated} bytes");
    value
}
