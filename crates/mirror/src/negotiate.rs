//! Negotiates the representation of a response by `Accept`, as the API server does.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use listwatch::Encoding;

use crate::request::ReadVerb;
use crate::response::{ForwardReason, Refusal, status};

/// The media types that the API server names in a 406.
const SUPPORTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The representation of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Representation {
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
}

/// What a response has of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The object.
    Whole,
    /// `PartialObjectMetadata`, in a list `PartialObjectMetadataList`.
    Metadata,
    /// A row of a `Table`, in JSON.
    Row,
}

impl Representation {
    /// Whole objects as JSON.
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, form: Form::Whole };

    /// Returns the content type of objects and lists. As the API server's, it does not name the transformation.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(self.encoding.media_type())
    }

    /// Returns the content type of watches.
    pub(crate) fn watch_content_type(self) -> HeaderValue {
        HeaderValue::from_static(self.encoding.watch_media_type())
    }
}

/// Chooses the representation of a response by the first clause that the API server accepts, for a resource with or
/// without protobuf.
///
/// # Errors
///
/// [`Refusal::Forward`] if that clause requests a representation that the mirror does not write; 406 if there is none.
pub(crate) fn negotiate_representation(
    headers: &HeaderMap,
    verb: ReadVerb,
    has_protobuf: bool,
) -> Result<Representation, Refusal> {
    let not_acceptable = || Refusal::from(status::not_acceptable(SUPPORTED));
    let mut values = headers.get_all(ACCEPT).iter();
    let Some(accept) = values.next() else { return Ok(Representation::JSON) };
    // The API server reads the first header only.
    let accept = accept.to_str().map_err(|_| not_acceptable())?;
    if accept.trim().is_empty() {
        return Ok(Representation::JSON);
    }
    let chosen = order_clauses(accept).find_map(|clause| read_clause(clause, verb, has_protobuf));
    chosen.unwrap_or_else(|| Err(not_acceptable()))
}

/// Returns the encoding of an error: of the first clause that requests no other form of the objects, as on the API
/// server (`DefaultEndpointRestrictions` in apiserver `pkg/endpoints/handlers/negotiation`). It is JSON if there is
/// none, or if the mirror does not write its encoding.
pub(crate) fn negotiate_error(headers: &HeaderMap) -> Encoding {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let mut encodings = order_clauses(accept).filter_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        let is_transformed = parts.any(|part| part.split('=').next().unwrap_or_default().trim() == "as");
        match &*media_type {
            _ if is_transformed => None,
            "*/*" | "application/*" | "application/yaml" => Some(Encoding::Json),
            media_type => Encoding::from_media_type(media_type),
        }
    });
    encodings.next().unwrap_or(Encoding::Json)
}

/// Returns the representation that a clause requests; `None` if the API server skips it.
fn read_clause(clause: &str, verb: ReadVerb, has_protobuf: bool) -> Option<Result<Representation, Refusal>> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = match &*parts.next()?.to_ascii_lowercase() {
        "*/*" | "application/*" => Encoding::Json,
        // The API server accepts YAML, and CBOR behind a feature gate.
        "application/yaml" => return Some(Err(Refusal::Forward(ForwardReason::Form))),
        media_type => Encoding::from_media_type(media_type)?,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for part in parts {
        let (name, value) = part.split_once('=').map_or((part, ""), |(name, value)| (name.trim(), value.trim()));
        let value = value.trim_matches('"');
        match &*name.to_ascii_lowercase() {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "q" | "charset" => {}
            "stream" if value == "watch" => {}
            // `pretty`, `profile` and `drop` change the body.
            _ => return Some(Err(Refusal::Forward(ForwardReason::Form))),
        }
    }
    let partial = if verb == ReadVerb::List { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    match (kind, group, version) {
        // Custom resources have no protobuf form, except for their metadata.
        ("", "", "") if !encoding.is_self_describing() && !has_protobuf => None,
        ("", "", "") => Some(Ok(Representation { encoding, form: Form::Whole })),
        (kind, "meta.k8s.io", "v1") if kind == partial => Some(Ok(Representation { encoding, form: Form::Metadata })),
        // A Table has no protobuf form.
        ("Table", "meta.k8s.io", "v1") if !encoding.is_self_describing() => None,
        ("Table", "meta.k8s.io", "v1") => Some(Ok(Representation { encoding, form: Form::Row })),
        // The API server decides which of the other forms it accepts, such as those of `v1beta1`.
        _ => Some(Err(Refusal::Forward(ForwardReason::Form))),
    }
}

/// Returns the clauses by descending quality, else in the order of the header.
fn order_clauses(accept: &str) -> impl Iterator<Item = &str> {
    let mut clauses: Vec<(u16, &str)> = accept.split(',').map(|clause| (read_quality(clause), clause.trim())).collect();
    clauses.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
    clauses.into_iter().filter(|(_, clause)| !clause.is_empty()).map(|(_, clause)| clause)
}

/// Returns the quality of a clause in thousandths.
fn read_quality(clause: &str) -> u16 {
    let value = clause.split(';').skip(1).find_map(|part| part.trim().strip_prefix("q="));
    let thousandths = value.and_then(|value| value.parse::<f32>().ok()).map(|quality| quality.clamp(0.0, 1.0) * 1000.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    thousandths.map_or(1000, |thousandths| thousandths as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str, verb: ReadVerb) -> Result<Representation, Refusal> {
        negotiate_representation(&HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]), verb, true)
    }

    /// Measured against kube-apiserver 1.37.
    #[test]
    fn chooses_the_encoding_of_errors_as_the_api_server() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        const PARTIAL: &str = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

        for (accept, expected) in [
            (PROTOBUF.to_owned(), Encoding::Protobuf),
            (format!("{PROTOBUF},application/json"), Encoding::Protobuf),
            (format!("application/json;q=0.5,{PROTOBUF}"), Encoding::Protobuf),
            (format!("application/json{PARTIAL},{PROTOBUF}"), Encoding::Protobuf),
            (format!("{PROTOBUF}{PARTIAL}"), Encoding::Json),
            (format!("{PROTOBUF}{PARTIAL},application/json"), Encoding::Json),
            (format!("*/*,{PROTOBUF}"), Encoding::Json),
            ("text/html".to_owned(), Encoding::Json),
            (String::new(), Encoding::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(negotiate_error(&headers), expected, "{accept}");
        }
        assert_eq!(negotiate_error(&HeaderMap::new()), Encoding::Json);
    }

    #[test]
    fn takes_the_first_form_that_the_api_server_writes() {
        const OF_LIST: &str =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        const OF_OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

        const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;\
            g=meta.k8s.io,application/json";

        let whole = |encoding| Representation { encoding, form: Form::Whole };
        let partial = |encoding| Representation { encoding, form: Form::Metadata };
        let row = Representation { encoding: Encoding::Json, form: Form::Row };
        for (accept, verb, expected) in [
            ("", ReadVerb::List, Some(whole(Encoding::Json))),
            ("*/*", ReadVerb::List, Some(whole(Encoding::Json))),
            ("application/json", ReadVerb::List, Some(whole(Encoding::Json))),
            ("Application/JSON; charset=utf-8", ReadVerb::List, Some(whole(Encoding::Json))),
            ("application/vnd.kubernetes.protobuf,application/json", ReadVerb::List, Some(whole(Encoding::Protobuf))),
            ("application/vnd.kubernetes.protobuf;stream=watch", ReadVerb::Watch, Some(whole(Encoding::Protobuf))),
            (
                "application/json;q=0.5,application/vnd.kubernetes.protobuf",
                ReadVerb::List,
                Some(whole(Encoding::Protobuf)),
            ),
            ("application/cbor,application/json", ReadVerb::List, Some(whole(Encoding::Json))),
            ("text/html, */*;q=0.1", ReadVerb::Get, Some(whole(Encoding::Json))),
            (OF_LIST, ReadVerb::List, Some(partial(Encoding::Protobuf))),
            (OF_OBJECT, ReadVerb::Get, Some(partial(Encoding::Json))),
            (OF_OBJECT, ReadVerb::Watch, Some(partial(Encoding::Json))),
            (TABLE, ReadVerb::List, Some(row)),
            (TABLE, ReadVerb::Get, Some(row)),
            (TABLE, ReadVerb::Watch, Some(row)),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                ReadVerb::List,
                Some(whole(Encoding::Json)),
            ),
            // Left to the API server.
            (OF_LIST, ReadVerb::Watch, None),
            (OF_OBJECT, ReadVerb::List, None),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", ReadVerb::List, None),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1", ReadVerb::List, None),
            ("application/yaml", ReadVerb::Get, None),
            ("application/json;pretty=1", ReadVerb::Get, None),
        ] {
            match (chosen(accept, verb), expected) {
                (Ok(found), Some(expected)) => assert_eq!(found, expected, "{accept}"),
                (Err(Refusal::Forward(ForwardReason::Form)), None) => {}
                (found, expected) => panic!("{accept}: {found:?}, not {expected:?}"),
            }
        }
        for accept in ["text/html", "application/cbor", "image/png;q=1"] {
            let Err(Refusal::Status(status)) = chosen(accept, ReadVerb::List) else { panic!("{accept}") };
            assert_eq!(status.code, 406);
        }
    }
}
