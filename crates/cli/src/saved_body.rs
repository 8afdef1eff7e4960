//! Saved bodies of lists, which `stats` reads.

use std::io;
use std::path::Path;
use std::pin::Pin;

use async_compression::tokio::bufread::GzipDecoder;
use listwatch::internal::chain;
use listwatch::{BodyFormat, DecodeErrorKind, ItemError, ItemRef, LabelSelector, ListDecoder, ListError, ListMeta};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::failure::Failure;
use crate::notices;
use crate::output::ListProgress;

/// The size of the chunks in which a body is read.
pub const CHUNK: usize = 256 << 10;

/// A saved body that is open.
pub struct SavedBody {
    /// The name of the file in messages.
    pub source: String,
    /// The body, after decompression.
    pub reader: Pin<Box<dyn AsyncRead>>,
}

impl SavedBody {
    /// Opens a file, or stdin if it is `None` or `-`.
    pub async fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let path = file.filter(|file| *file != Path::new("-"));
        let source = path.map_or_else(|| "stdin".to_owned(), |path| path.to_string_lossy().into_owned());
        match open_decompressed(path).await {
            Ok(reader) => Ok(Self { source, reader }),
            Err(error) => Err(Failure::Error(format!("cannot read {source}: {error}"))),
        }
    }
}

/// Opens a file, and decompresses gzip.
async fn open_decompressed(path: Option<&Path>) -> io::Result<Pin<Box<dyn AsyncRead>>> {
    let file: Pin<Box<dyn AsyncRead>> = match path {
        Some(path) => Box::pin(File::open(path).await?),
        None => Box::pin(tokio::io::stdin()),
    };
    let mut file = BufReader::with_capacity(CHUNK, file);
    // The buffer may hold only the first byte of gzip's magic number. No list starts with that byte.
    if file.fill_buf().await?.first() != Some(&0x1f) {
        return Ok(Box::pin(file));
    }
    let mut body = GzipDecoder::new(file);
    body.multiple_members(true);
    Ok(Box::pin(body))
}

/// Returns the text of a saved body's error, and what to save instead.
pub fn explain_error(error: &ListError<io::Error>, source: &str, decoder: &ListDecoder) -> String {
    let error = match error {
        ListError::Decode(error) if error.is_incomplete() && decoder.position() == 0 => {
            return format!("{source} is empty: expected the body of a list");
        }
        ListError::Decode(error) => error,
        error => return format!("{source}: {}, {}", chain(error), decoder_progress(decoder).text()),
    };
    let hint = match error.kind() {
        DecodeErrorKind::UnexpectedKind { kind, .. } if kind == "Table" => "; request the list without as=Table",
        // Also the lines of -o jsonl.
        DecodeErrorKind::UnexpectedKind { kind, .. } if !kind.ends_with("List") => {
            "; the file has single objects: to save a list, use `record`"
        }
        DecodeErrorKind::UnexpectedEncoding(BodyFormat::Cbor) => "; request application/vnd.kubernetes.protobuf",
        DecodeErrorKind::Item(ItemError::UnknownKind { .. }) => "; request JSON from the server",
        _ => "",
    };
    format!("{source}: {}{hint}", chain(error))
}

/// Warns if the list has more pages.
pub fn warn_of_more_pages(list_meta: &ListMeta) {
    if !list_meta.continue_token.is_empty() {
        notices::warn("the body is one page of a longer list");
    }
}

/// Returns the progress of a decoder.
pub fn decoder_progress(decoder: &ListDecoder) -> ListProgress {
    ListProgress {
        bytes: decoder.position(),
        items: decoder.items(),
        expected_bytes: decoder.expected_bytes(),
        expected_items: None,
    }
}

/// The namespace and the labels of the items that are read, as a server selects them.
#[derive(Default)]
pub struct ItemFilter {
    pub namespace: Option<String>,
    pub labels: LabelSelector,
}

impl ItemFilter {
    /// Returns true if all items are selected.
    pub fn is_empty(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty()
    }

    /// Returns true if the item is selected.
    pub fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        if self.is_empty() {
            return Ok(true);
        }
        let meta = item.meta()?;
        let is_inside = self.namespace.as_ref().is_none_or(|namespace| meta.namespace() == **namespace);
        Ok(is_inside && self.labels.matches(&meta)?)
    }
}
