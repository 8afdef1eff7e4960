//! Views read the same values as other readers of the same bytes.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
mod fuzz;
#[rustfmt::skip]
#[allow(clippy::match_same_arms, clippy::too_many_lines, clippy::wildcard_imports, reason = "generated")]
mod generated;
mod json;
mod k8s_pb;
mod node;
mod pb;
#[path = "../../../fuzz/src/views.rs"]
mod target;
