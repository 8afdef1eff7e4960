//! When a [`Controller`] reconciles which object, under paused time.

mod lifecycle;
mod requests;
mod selection;
mod support;
mod writes;
