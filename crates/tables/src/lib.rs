//! Tables of Kubernetes objects: columns and cells as kube-apiserver and kubectl print them.
//!
//! kubectl prints what the API server computes: it requests the media type `application/json;as=Table`. This crate
//! computes the same from the bytes of an object, for programs that have objects and no server. A [`Printer`] has the
//! columns and the rows of one kind:
//!
//! ```
//! use listwatch::{Encoding, ItemRef, TypeMeta};
//! use listwatch_tables::Printer;
//!
//! let pod = br#"{"metadata":{"name":"shop-1","creationTimestamp":"2026-11-25T10:00:00Z"},
//!     "spec":{"containers":[{}]},"status":{"phase":"Pending"}}"#;
//! let printer = Printer::for_kind(&TypeMeta::new("v1", "Pod")).unwrap();
//! let row = printer.row(&ItemRef::new(Encoding::Json, pod), "2026-11-25T10:05:00Z".parse()?)?;
//! let text: Vec<_> = row.cells.iter().map(ToString::to_string).collect();
//! assert_eq!(text[..5], ["shop-1", "0/1", "Pending", "0", "5m"]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The printers follow `pkg/printers/internalversion/printers.go` of Kubernetes 1.37, and for custom resources
//! `tableconvertor.go` of the apiextensions API server. They take what a server serves: objects with defaults.
//!
//! [`JsonPath`](json_path::JsonPath) is kubectl's dialect of JSONPath, in which custom resources define their columns.
//! [`ObjectReader`](json_path::ObjectReader) reads only what a path needs of an object.

#![forbid(unsafe_code)]

mod age;
mod autoscaling;
mod cell;
#[rustfmt::skip]
mod columns;
mod custom;
mod event;
mod fields;
mod go_json;
mod go_yaml;
pub mod json_path;
mod network;
mod node;
mod pod;
mod printer;
mod service;
mod small;
mod storage;
mod workload;

pub use age::{age_at, human_duration};
pub use cell::{Cell, Column, Row, RowCondition};
pub use custom::CustomPrinterError;
pub use go_json::{indent_json, write_go_json};
pub use go_yaml::{write_go_yaml, write_go_yaml_item};
pub use printer::Printer;
