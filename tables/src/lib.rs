//! Tables of Kubernetes objects: columns and cells as kube-apiserver and kubectl print them.

#![forbid(unsafe_code)]

pub mod json_path;
