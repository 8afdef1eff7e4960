//! `listwatch history check`: verifies every record.

use std::path::Path;

use indicatif::HumanCount;

use super::query::{failure, open};
use crate::failure::Failure;
use crate::notices;

pub fn run(dir: &Path) -> Result<(), Failure> {
    let report = open(dir)?.check().map_err(|error| failure(&error))?;
    for damage in &report.damage {
        notices::warn(damage);
    }
    let (states, objects) = (HumanCount(report.states), HumanCount(report.objects));
    let parts = if report.parts == 1 { "part" } else { "parts" };
    notices::print_labelled("checked:", &format!("{states} states of {objects} objects in {} {parts}", report.parts));
    match report.damage.len() {
        0 => Ok(()),
        1 => Err(Failure::Error(format!("{}: 1 damaged place", dir.display()))),
        count => Err(Failure::Error(format!("{}: {count} damaged places", dir.display()))),
    }
}
