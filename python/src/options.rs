//! Arguments of calls, as the parameters of requests.

use std::time::Duration;

use listwatch::client::{ListParams, ResourceVersion, Selection, WatchParams};
use listwatch::{FieldSelector, LabelSelector};
use pyo3::prelude::*;

use crate::errors;

/// What a list, a watch and a cache select.
#[derive(FromPyObject)]
pub struct Selected {
    #[pyo3(item)]
    pub namespaces: Option<Vec<String>>,
    #[pyo3(item)]
    label_selector: Option<String>,
    #[pyo3(item)]
    field_selector: Option<String>,
    #[pyo3(item)]
    metadata_only: bool,
}

impl Selected {
    pub fn selection(&self, py: Python<'_>) -> PyResult<Selection> {
        let mut selection = Selection::all();
        if let Some(selector) = &self.label_selector {
            let parsed: LabelSelector = selector.parse().map_err(|error| errors::invalid(py, format!("{error}")))?;
            selection = selection.labels(parsed);
        }
        if let Some(selector) = &self.field_selector {
            let parsed: FieldSelector = selector.parse().map_err(|error| errors::invalid(py, format!("{error}")))?;
            selection = selection.fields(parsed);
        }
        if self.metadata_only {
            selection = selection.metadata_only();
        }
        selection.validate().map_err(|error| errors::invalid(py, error.to_string()))?;
        Ok(selection)
    }
}

/// Returns the version of a list: as kubectl and Kubernetes' clients mean the text.
pub fn version(text: Option<String>) -> ResourceVersion {
    match text {
        None => ResourceVersion::MostRecent,
        Some(text) if text == "0" => ResourceVersion::Any,
        Some(text) => ResourceVersion::AtLeast(text),
    }
}

pub fn list_params(selection: Selection, version: ResourceVersion, page_size: Option<u32>) -> ListParams {
    let params = ListParams::new(selection).resource_version(version);
    match page_size {
        Some(items) => params.page_size(items),
        None => params,
    }
}

pub fn watch_params(selection: Selection, initial_state: bool, version: Option<String>) -> WatchParams {
    let params = match (version, initial_state) {
        (Some(version), true) => WatchParams::with_initial_state_at_least(version),
        (Some(version), false) => WatchParams::from_version(version),
        (None, true) => WatchParams::with_initial_state(),
        (None, false) => WatchParams::from_now(),
    };
    params.selection(selection)
}

/// Returns the duration of an argument in seconds.
pub fn duration(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        errors::invalid(py, format!("{name} must be a number of seconds that is not negative, not {seconds}"))
    })
}
