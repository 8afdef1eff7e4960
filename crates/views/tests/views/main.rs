//! Views read the same values as other readers of the same bytes.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod fuzz;
#[allow(clippy::wildcard_imports, unused_variables, reason = "all messages of a module; some have no kinds")]
mod generated;
mod json;
mod k8s_pb;
mod node;
mod pb;
#[path = "../../../../fuzz/src/views.rs"]
mod target;
