//! `listwatch decode`: decodes the saved body of a list.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use async_compression::tokio::bufread::GzipDecoder;
use bytesize::ByteSize;
use clap::error::ErrorKind;
use listwatch::{
    BodyFormat, DecodeErrorKind, ItemError, ItemRef, LabelSelector, Limit, Limits, ListDecoder, ListError, ListMeta,
    ListStream,
};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio_util::io::ReaderStream;

use crate::failure::{Failure, chain};
use crate::filter::Filter;
use crate::notices;
use crate::number::number;
use crate::output::{Format, Output, Row, Shown, Summary};
use crate::rows::{self, Reached};

pub const CHUNK: usize = 256 << 10;

/// Decodes the saved body of a list, in protobuf or JSON, while reading it.
///
/// Gzip is decompressed. An error is one line on stderr: the fault, its position in the body, and the number of items delivered before it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch decode pods.pb                 the names of all Pods
  listwatch decode -o summary pods.pb.gz   kind, version and counts, as JSON
  listwatch decode -o json pods.pb         one JSON object a line, without managedFields
  listwatch decode -o yaml pods.pb web/shop-1   one Pod, by namespace and name

From a live API server, while `kubectl proxy` runs:
  curl -sH 'Accept: application/vnd.kubernetes.protobuf' localhost:8001/api/v1/pods | listwatch decode -o table")]
pub struct Args {
    /// File that contains the body; `-` for stdin [default: stdin]
    file: Option<PathBuf>,

    /// Print only these objects: NAMESPACE/NAME, as -o name prints them; NAME with -n, or if the object has no namespace
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print only objects of this namespace
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Print only objects with these labels: `app=web,tier!=cache,env in (a,b)`
    #[cfg(feature = "cluster")]
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    selector: Option<LabelSelector>,

    /// Stop after N items
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX))]
    limit: Option<u64>,

    #[command(flatten)]
    shown: Shown,

    /// Skip items that exceed --max-item-size or cannot be read, and print their number, instead of failing
    #[arg(long)]
    skip_bad_items: bool,

    /// Maximum size of an item
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(Limits::DEFAULT_ITEM_SIZE), help_heading = "Limits")]
    max_item_size: ByteSize,

    /// Maximum number of items [default: no limit]
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX), help_heading = "Limits")]
    max_items: Option<u64>,

    /// Maximum size of the body, after decompression [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_bytes: Option<ByteSize>,

    /// Maximum size of a string in the list's own metadata
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(Limits::DEFAULT_METADATA_SIZE), help_heading = "Limits")]
    max_metadata_size: ByteSize,
}

pub async fn run(mut args: Args) -> Result<(), Failure> {
    if args.file.is_none() && io::stdin().is_terminal() {
        let mut cli = crate::command(&crate::invoked_as());
        cli.build();
        let decode = cli.find_subcommand_mut("decode").expect("the subcommand exists");
        decode.error(ErrorKind::MissingRequiredArgument, "no FILE is given, and stdin is a terminal").exit();
    }
    if args.shown.format == Format::Summary && args.limit.is_some() {
        return Err(Failure::Usage(
            "--limit cannot be used with -o summary, which describes the whole list".to_owned(),
        ));
    }
    let filter = args.filter();
    if args.shown.format == Format::Summary && !(args.names.is_empty() && filter.is_empty()) {
        return Err(Failure::Usage(
            "NAME, -n and -l cannot be used with -o summary, which describes the whole list".to_owned(),
        ));
    }
    if let Some(namespace) = &args.namespace {
        args.names.iter_mut().filter(|name| !name.contains('/')).for_each(|name| *name = format!("{namespace}/{name}"));
    }
    let mut rows = args.shown.rows()?;
    let path = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let source = path.map_or_else(|| "stdin".into(), Path::to_string_lossy);
    let body = open(path).await.map_err(|error| Failure::Error(format!("cannot read {source}: {error}")))?;

    let mut missing: HashSet<&str> = args.names.iter().map(String::as_str).collect();
    let mut limit = match (args.limit, missing.len() as u64) {
        (limit, 0) => limit,
        // No later item has one of the names.
        (limit, names) => Some(limit.map_or(names, |limit| limit.min(names))),
    };
    let mut in_a_namespace = None;
    let mut row = |item: ItemRef<'_>| {
        if !filter.selects(&item)? {
            return Ok(Row::Nothing);
        }
        if !args.names.is_empty() {
            let meta = item.meta()?;
            let name = meta.name();
            let key = match meta.namespace() {
                namespace if namespace.is_empty() => name.clone(),
                namespace => format!("{namespace}/{name}").into(),
            };
            if !missing.remove(&*key) {
                if in_a_namespace.is_none() && missing.contains(&*name) {
                    in_a_namespace = Some((name.into_owned(), key.into_owned()));
                }
                return Ok(Row::Nothing);
            }
        }
        rows.row(&item)
    };
    let mut items = ListStream::with(ReaderStream::with_capacity(body, CHUNK), &mut row)
        .accept_json()
        .limits(args.limits())
        .skip_item_errors(args.skip_bad_items);
    let mut output = Output::new(&args.shown);
    let done = rows::print(&mut items, &mut output, &mut limit, |items| reached(items.decoder())).await?;
    let error = done.err().map(|error| (explain(&error, &source, items.decoder()), error));
    let end = items.end().cloned();
    drop(items);
    rows.check()?;
    let mut missing: Vec<_> = missing.into_iter().collect();
    missing.sort_unstable();
    let mut faults = Vec::new();
    if let Some((name, key)) = in_a_namespace.filter(|(name, _)| missing.contains(&&**name)) {
        missing.retain(|missing| *missing != name);
        let hint = format!("write NAMESPACE/NAME, for example {key}");
        faults.push(format!("{source} has no object {name} without a namespace; {hint}"));
    }
    let missing = missing.join(", ");
    if let Some((text, error)) = error {
        faults.insert(0, text + option(&error));
        if !missing.is_empty() && is_incomplete(&error) {
            faults.push(format!("{missing} may be in the missing part"));
        }
        return Err(Failure::Error(faults.join("; ")));
    }
    // `None` if the list ended at --limit.
    let end = end.as_ref();
    let summary = end.map(|end| Summary::new(&end.type_meta, &end.list_meta, end.items, end.bytes));
    output.end(summary.as_ref())?;
    if let Some(end) = end {
        warn_of_page(&end.list_meta);
    }
    if let Some(end) = end
        && end.skipped > 0
    {
        let items = if end.skipped == 1 { "item" } else { "items" };
        notices::line(format_args!("skipped: {} bad {items}", end.skipped));
    }
    notices::unknown_fields(rows.unknown_fields);
    if !missing.is_empty() {
        faults.push(format!("{source} has no {missing}"));
    }
    match end {
        Some(_) if !faults.is_empty() => Err(Failure::Error(faults.join("; "))),
        _ => Ok(()),
    }
}

impl Args {
    fn filter(&self) -> Filter {
        Filter {
            namespace: self.namespace.clone(),
            #[cfg(feature = "cluster")]
            labels: self.selector.clone().unwrap_or_default(),
            #[cfg(not(feature = "cluster"))]
            labels: LabelSelector::new(),
        }
    }

    fn limits(&self) -> Limits {
        Limits::default()
            .item_size(self.max_item_size.as_u64())
            .items(self.max_items.unwrap_or(u64::MAX))
            .bytes(self.max_bytes.map_or(u64::MAX, |size| size.as_u64()))
            .metadata_size(self.max_metadata_size.as_u64())
    }
}

pub async fn open(path: Option<&Path>) -> io::Result<Pin<Box<dyn AsyncRead>>> {
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
pub fn explain(error: &ListError<io::Error>, source: &str, decoder: &ListDecoder) -> String {
    let error = match error {
        ListError::Decode(error) if error.is_incomplete() && decoder.position() == 0 => {
            return format!("{source} is empty: expected the body of a list");
        }
        ListError::Decode(error) => error,
        error => return format!("{source}: {}, {}", chain(error), reached(decoder).text()),
    };
    let hint = match error.kind() {
        DecodeErrorKind::UnexpectedKind { kind, .. } if kind == "Table" => "; request the list without as=Table",
        // Also the lines of -o json.
        DecodeErrorKind::UnexpectedKind { kind, .. } if !kind.ends_with("List") => {
            "; the file has single objects: to save a list, use `record`"
        }
        DecodeErrorKind::UnexpectedEncoding(BodyFormat::Cbor) => "; request application/vnd.kubernetes.protobuf",
        DecodeErrorKind::Item(ItemError::UnknownKind { .. }) => "; request JSON from the server",
        _ => "",
    };
    format!("{source}: {}{hint}", chain(error))
}

/// Returns the option that raises the limit of the error.
fn option(error: &ListError<io::Error>) -> &'static str {
    let ListError::Decode(error) = error else { return "" };
    match error.limit() {
        Some(Limit::ItemSize) => "; --max-item-size raises the limit",
        Some(Limit::Items) => "; --max-items raises the limit",
        Some(Limit::Bytes) => "; --max-bytes raises the limit",
        Some(Limit::MetadataSize) => "; --max-metadata-size raises the limit",
        _ => "",
    }
}

/// Returns true if the body ended early, as gzip or after decompression.
fn is_incomplete(error: &ListError<io::Error>) -> bool {
    match error {
        ListError::Decode(error) => error.is_incomplete(),
        ListError::Transport(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// Warns if the list has more pages.
pub fn warn_of_page(list_meta: &ListMeta) {
    if !list_meta.continue_token.is_empty() {
        notices::warn("the body is one page of a longer list");
    }
}

pub fn reached(decoder: &ListDecoder) -> Reached {
    Reached {
        bytes: decoder.position(),
        items: decoder.items(),
        expected_bytes: decoder.expected_bytes(),
        expected_items: None,
    }
}
