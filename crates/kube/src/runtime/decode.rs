//! Decoding of objects, with or without a projection.

use std::sync::Arc;

use listwatch::{Encoding, ItemError, ItemRef, Projection};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};

use super::errors::build_request_error;

/// The buffer of projected objects is shrunk to this capacity.
const MAX_IDLE_BUFFER: usize = 64 << 10;

/// Decodes an item, and returns a decoding error as the item, so that it does not end the watch, as in kube.
///
/// Objects are boxed because they may have several kilobytes, which each layer of the stream would copy.
pub(super) type DecodeItem<K> = Box<dyn FnMut(ItemRef<'_>) -> Result<serde_json::Result<Box<K>>, ItemError> + Send>;

/// Returns the decoder of a list or of a watch.
///
/// # Errors
///
/// [`BuildRequest`](kube::Error::BuildRequest) for a projection that a watcher cannot apply.
pub(super) fn item_decoder<K: DeserializeOwned + 'static>(
    projection: Option<Arc<Projection>>,
) -> kube::Result<DecodeItem<K>> {
    projection.as_deref().map_or(Ok(()), check_projection)?;
    let mut copy = Vec::new();
    Ok(Box::new(move |item| {
        let decoded = match projection.as_deref() {
            None => decode_object(item),
            Some(projection) => decode_projected(item, projection, &mut copy),
        };
        Ok(decoded)
    }))
}

/// Refuses a projection that does not apply to JSON, or drops metadata that the watcher or kube's stores need.
fn check_projection(projection: &Projection) -> kube::Result<()> {
    let object = br#"{"metadata":{"name":"a","namespace":"a","uid":"a","resourceVersion":"1"}}"#;
    let copy = ItemRef::new(Encoding::Json, object).project(projection).map_err(build_request_error)?;
    let meta = ItemRef::new(Encoding::Json, &copy).meta().map_err(build_request_error)?;
    for (field, value) in [
        ("name", meta.name()),
        ("namespace", meta.namespace()),
        ("uid", meta.uid()),
        ("resourceVersion", meta.resource_version()),
    ] {
        if value.is_empty() {
            return Err(build_request_error(format!("the projection drops metadata.{field}, which a watcher needs")));
        }
    }
    Ok(())
}

/// Copies the JSON that the projection leaves into an empty buffer, which serves many objects, and decodes it.
fn decode_projected<K: DeserializeOwned>(
    item: ItemRef<'_>,
    projection: &Projection,
    copy: &mut Vec<u8>,
) -> serde_json::Result<Box<K>> {
    let decoded = match item.project_into(projection, copy) {
        Ok(()) => decode_object(ItemRef::new(item.encoding(), copy)),
        // Returns serde's own error, as kube does.
        Err(error) => Err(serde_json::from_slice::<IgnoredAny>(item.bytes())
            .err()
            .unwrap_or_else(|| serde_json::Error::custom(error))),
    };
    copy.clear();
    copy.shrink_to(MAX_IDLE_BUFFER);
    decoded
}

/// Decodes an object from JSON.
fn decode_object<K: DeserializeOwned>(item: ItemRef<'_>) -> serde_json::Result<Box<K>> {
    item.decode_json().or_else(|error| match error {
        ItemError::DecodedSize { .. } => Err(serde_json::Error::custom(error)),
        // Returns serde's own error, as kube does.
        _ => serde_json::from_slice(item.bytes()).map(Box::new),
    })
}
