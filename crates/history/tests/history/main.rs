//! What a history promises, in a module for each promise.

mod crash;
mod damage;
mod gaps;
mod model;
mod support;
