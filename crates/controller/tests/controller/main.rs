//! When a [`Controller`] reconciles which object, under paused time.

mod lifecycle;
mod requests;
mod selection;
mod support;
#[path = "../../../../tests/support/log.rs"]
mod trace;
mod writes;
