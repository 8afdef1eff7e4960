//! When a [`Controller`] reconciles which object, under paused time.

mod failures;
mod lifecycle;
mod metrics;
mod priorities;
mod requests;
mod selection;
mod support;
#[path = "../../../../tests/support/log.rs"]
mod trace;
mod writes;
