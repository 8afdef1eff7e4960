//! `listwatch decode`: decodes the saved body of a list.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::rc::Rc;

use bytesize::ByteSize;
use clap::error::ErrorKind;
use listwatch::{ItemError, ItemRef, LabelSelector, Limit, Limits, ListError, ListStream};
use tokio_util::io::ReaderStream;

use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::output::{Needs, Output, OutputArgs, Purpose, SummaryObject, print_rows};
use crate::saved_body::{CHUNK, ItemFilter, SavedBody, decoder_progress, explain_error, warn_of_more_pages};

/// Decode the saved body of a list, in protobuf or JSON, while reading it.
///
/// Gzip is decompressed. An error is one line on stderr: the fault, its position in the body, and the number of items
/// delivered before it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch decode pods.pb                 the names of all Pods
  listwatch decode -o summary pods.pb.gz   kind, version and counts, as JSON
  listwatch decode -o json pods.pb         one JSON object a line, without managedFields
  listwatch decode -o yaml pods.pb web/shop-1   one Pod, by namespace and name

From a live API server, while `kubectl proxy` runs:
  curl -sH 'Accept: application/vnd.kubernetes.protobuf' localhost:8001/api/v1/pods | listwatch decode -o table")]
pub struct DecodeArgs {
    /// File that contains the body; `-` for stdin [default: stdin]
    file: Option<PathBuf>,

    /// Print only these objects, by NAMESPACE/NAME, as -o name prints them.
    ///
    /// NAME alone is enough with -n, or if the object has no namespace.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print only objects of this namespace
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Print only objects with these labels: `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    selector: Option<LabelSelector>,

    /// Stop after N items
    #[arg(long, value_name = "N", value_parser = number_in(1..=u64::MAX))]
    limit: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    /// Skip items that exceed --max-item-size or cannot be read, and print their number
    #[arg(long)]
    skip_bad_items: bool,

    /// Maximum size of an item
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(Limits::DEFAULT_ITEM_SIZE), help_heading = "Limits")]
    max_item_size: ByteSize,

    /// Maximum number of items [default: no limit]
    #[arg(long, value_name = "N", value_parser = number_in(0..=u64::MAX), help_heading = "Limits")]
    max_items: Option<u64>,

    /// Maximum size of the body, after decompression [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_bytes: Option<ByteSize>,

    /// Maximum size of a string in the list's own metadata
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(Limits::DEFAULT_METADATA_SIZE), help_heading = "Limits")]
    max_metadata_size: ByteSize,
}

/// Runs the command. `command` returns the whole command line interface, for an error of clap.
pub async fn run(mut args: DecodeArgs, command: impl FnOnce() -> clap::Command) -> Result<(), Failure> {
    args.require_file(command);
    args.check()?;
    args.qualify_names();
    let filter = args.item_filter();
    let format = args.output.format(None, Purpose::Objects);
    let SavedBody { source, reader } = SavedBody::open(args.file.as_deref()).await?;
    let mut names = NameFilter::new(&args.names);
    // No item after those with the names is printed.
    let mut limit = args.limit.into_iter().chain(names.limit()).min();
    let mut row = |item: ItemRef<'_>| {
        if !filter.selects(&item)? || !names.selects(&item)? {
            return Ok(None);
        }
        format.row(&item)
    };
    let mut items = ListStream::with(ReaderStream::with_capacity(reader, CHUNK), &mut row)
        .accept_json()
        .limits(args.limits())
        .skip_item_errors(args.skip_bad_items);
    let mut output = Output::new(Rc::clone(&format), args.output.no_headers());
    let done = print_rows(&mut items, &mut output, &mut limit, |items| decoder_progress(items.decoder())).await?;
    let error = done.err().map(|error| (explain_error(&error, &source, items.decoder()), error));
    let end = items.end().cloned();
    drop(items);
    if let Some(error) = format.usage_error() {
        return Err(Failure::Usage(error));
    }
    let (mut faults, missing) = names.missing(&source);
    if let Some((text, error)) = error {
        faults.insert(0, text + limit_hint(&error));
        if !missing.is_empty() && is_incomplete(&error) {
            faults.push(format!("{missing} may be in the missing part"));
        }
        return Err(Failure::Error(faults.join("; ")));
    }
    // `None` if the list ended at --limit.
    let end = end.as_ref();
    let summary = end.map(|end| SummaryObject::new(&end.type_meta, &end.list_meta, end.items, end.bytes));
    output.end(summary.as_ref())?;
    if let Some(end) = end {
        warn_of_more_pages(&end.list_meta);
        print_skipped(end.skipped);
    }
    notices::warn_of_unknown_fields(format.take_unknown_fields());
    if !missing.is_empty() {
        faults.push(format!("{source} has no {missing}"));
    }
    match end {
        Some(_) if !faults.is_empty() => Err(Failure::Error(faults.join("; "))),
        _ => Ok(()),
    }
}

/// Prints the number of skipped items, if there are any.
fn print_skipped(count: u64) {
    if count > 0 {
        let items = if count == 1 { "item" } else { "items" };
        notices::print_line(format_args!("skipped: {count} bad {items}"));
    }
}

impl DecodeArgs {
    /// Exits with clap's error if no file is given, and stdin is a terminal.
    fn require_file(&self, command: impl FnOnce() -> clap::Command) {
        if self.file.is_none() && io::stdin().is_terminal() {
            let mut command = command();
            command.build();
            let decode = command.find_subcommand_mut("decode").expect("the subcommand exists");
            decode.error(ErrorKind::MissingRequiredArgument, "no FILE is given, and stdin is a terminal").exit();
        }
    }

    /// Refuses options that select items of a list that is described as a whole.
    fn check(&self) -> Result<(), Failure> {
        self.output.check()?;
        if self.output.needs() != Needs::Nothing {
            return Ok(());
        }
        let options = match (self.limit, self.names.is_empty() && self.item_filter().is_empty()) {
            (Some(_), _) => "--limit",
            (None, false) => "NAME, -n and -l",
            (None, true) => return Ok(()),
        };
        Err(Failure::Usage(format!("{options} cannot be used with -o summary, which describes the whole list")))
    }

    /// Adds the namespace of `-n` to names without one.
    fn qualify_names(&mut self) {
        if let Some(namespace) = &self.namespace {
            let unqualified = self.names.iter_mut().filter(|name| !name.contains('/'));
            unqualified.for_each(|name| *name = format!("{namespace}/{name}"));
        }
    }

    /// Returns the filter of `-n` and `-l`.
    fn item_filter(&self) -> ItemFilter {
        ItemFilter { namespace: self.namespace.clone(), labels: self.selector.clone().unwrap_or_default() }
    }

    /// Returns the limits of the decoder.
    fn limits(&self) -> Limits {
        Limits::default()
            .item_size(self.max_item_size.as_u64())
            .items(self.max_items.unwrap_or(u64::MAX))
            .bytes(self.max_bytes.map_or(u64::MAX, |size| size.as_u64()))
            .metadata_size(self.max_metadata_size.as_u64())
    }
}

/// The filter of the names in the command line.
struct NameFilter<'a> {
    /// True if names were given. Without names, all items are selected.
    is_set: bool,
    /// The names that no item has had so far.
    missing: HashSet<&'a str>,
    /// The first name that only an object with a namespace has, and its key.
    in_a_namespace: Option<(String, String)>,
}

impl<'a> NameFilter<'a> {
    fn new(names: &'a [String]) -> Self {
        let missing = names.iter().map(String::as_str).collect();
        Self { is_set: !names.is_empty(), missing, in_a_namespace: None }
    }

    /// Returns the number of items that can be selected; `None` if any number can.
    fn limit(&self) -> Option<u64> {
        self.is_set.then_some(self.missing.len() as u64)
    }

    /// Returns true for an item with one of the names.
    fn selects(&mut self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        if !self.is_set {
            return Ok(true);
        }
        let meta = item.meta()?;
        let name = meta.name();
        let key = match meta.namespace() {
            namespace if namespace.is_empty() => name.clone(),
            namespace => format!("{namespace}/{name}").into(),
        };
        let is_selected = self.missing.remove(&*key);
        if !is_selected && self.in_a_namespace.is_none() && self.missing.contains(&*name) {
            self.in_a_namespace = Some((name.into_owned(), key.into_owned()));
        }
        Ok(is_selected)
    }

    /// Returns a fault with a hint for a name that lacks its namespace, and the other missing names.
    fn missing(self, source: &str) -> (Vec<String>, String) {
        let mut missing: Vec<_> = self.missing.into_iter().collect();
        missing.sort_unstable();
        let mut faults = Vec::new();
        if let Some((name, key)) = self.in_a_namespace.filter(|(name, _)| missing.contains(&&**name)) {
            missing.retain(|missing| *missing != name);
            let hint = format!("write NAMESPACE/NAME, for example {key}");
            faults.push(format!("{source} has no object {name} without a namespace; {hint}"));
        }
        (faults, missing.join(", "))
    }
}

/// Returns a hint at the option that raises the limit of the error.
fn limit_hint(error: &ListError<io::Error>) -> &'static str {
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
