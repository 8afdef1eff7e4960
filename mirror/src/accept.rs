//! The negotiation of the form of a response, as the API server negotiates it.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use listwatch::Encoding;

use crate::request::ReadKind;
use crate::status::{Refusal, Status};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The media types that the API server names in a 406.
const SUPPORTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    /// True for `PartialObjectMetadata`, in a list `PartialObjectMetadataList`.
    pub(crate) metadata_only: bool,
}

impl Form {
    /// Whole objects as JSON.
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, metadata_only: false };

    /// Returns the content type of objects and lists. As the API server's, it does not name the transformation.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self.encoding {
            Encoding::Protobuf => PROTOBUF,
            _ => JSON,
        })
    }

    /// Returns the content type of watches.
    pub(crate) fn watch_content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => JSON,
        })
    }
}

/// Chooses the form of a response: the first clause that the API server accepts.
///
/// # Errors
///
/// [`Refusal::Forward`] if that clause asks for a form that the mirror does not write; 406 if there is none.
pub(crate) fn negotiate(headers: &HeaderMap, kind: ReadKind) -> Result<Form, Refusal> {
    let not_acceptable = || Refusal::from(Status::not_acceptable(SUPPORTED));
    let mut values = headers.get_all(ACCEPT).iter();
    let Some(accept) = values.next() else { return Ok(Form::JSON) };
    // The API server reads the first header only.
    let accept = accept.to_str().map_err(|_| not_acceptable())?;
    if accept.trim().is_empty() {
        return Ok(Form::JSON);
    }
    ordered(accept).find_map(|clause| choose(clause, kind)).unwrap_or_else(|| Err(not_acceptable()))
}

/// Returns the form that a clause asks for; `None` if the API server skips it.
fn choose(clause: &str, kind: ReadKind) -> Option<Result<Form, Refusal>> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = match &*parts.next()?.to_ascii_lowercase() {
        JSON | "*/*" | "application/*" => Encoding::Json,
        PROTOBUF => Encoding::Protobuf,
        // The API server accepts YAML, and CBOR behind a feature gate.
        "application/yaml" => return Some(Err(Refusal::Forward)),
        _ => return None,
    };
    let (mut kind_of_form, mut group, mut version) = ("", "", "");
    for part in parts {
        let (name, value) = part.split_once('=').map_or((part, ""), |(name, value)| (name.trim(), value.trim()));
        let value = value.trim_matches('"');
        match &*name.to_ascii_lowercase() {
            "as" => kind_of_form = value,
            "g" => group = value,
            "v" => version = value,
            "q" | "charset" => {}
            "stream" if value == "watch" => {}
            // `pretty`, `profile` and `drop` change the body.
            _ => return Some(Err(Refusal::Forward)),
        }
    }
    let partial = if kind == ReadKind::List { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    match (kind_of_form, group, version) {
        ("", "", "") => Some(Ok(Form { encoding, metadata_only: false })),
        (form, "meta.k8s.io", "v1") if form == partial => Some(Ok(Form { encoding, metadata_only: true })),
        // The API server decides which of the other forms it accepts: `Table`, and the versions `v1beta1`.
        _ => Some(Err(Refusal::Forward)),
    }
}

/// Returns the clauses by descending quality, else in the order of the header.
fn ordered(accept: &str) -> impl Iterator<Item = &str> {
    let mut clauses: Vec<(u16, &str)> = accept.split(',').map(|clause| (quality(clause), clause.trim())).collect();
    clauses.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
    clauses.into_iter().filter(|(_, clause)| !clause.is_empty()).map(|(_, clause)| clause)
}

/// Returns the quality of a clause in thousandths.
fn quality(clause: &str) -> u16 {
    let value = clause.split(';').skip(1).find_map(|part| part.trim().strip_prefix("q="));
    let thousandths = value.and_then(|value| value.parse::<f32>().ok()).map(|quality| quality.clamp(0.0, 1.0) * 1000.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    thousandths.map_or(1000, |thousandths| thousandths as u16)
}
