//! When a [`Controller`] reconciles which object, under paused time.

mod finalizer;
mod lifecycle;
mod requests;
mod selection;
mod support;
mod writes;
