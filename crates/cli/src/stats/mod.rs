//! `listwatch stats`: shows where the bytes of a collection are.

mod collect;
mod html;
mod live;
mod report;
mod savings;
mod usage;
mod walk;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use listwatch::{ItemError, ListStream};
use tempfile::NamedTempFile;
use tokio_util::io::ReaderStream;

use self::collect::ListStats;
use self::report::StatsReport;
use self::usage::UsageReport;
use crate::failure::Failure;
use crate::number::number_in;
use crate::output::{Output, print_rows};
use crate::partial_file::{create_beside, replace};
use crate::saved_body::{CHUNK, ItemFilter, SavedBody, decoder_progress, explain_error, warn_of_more_pages};

/// Show where the bytes of a collection are: per field, per namespace, per object.
///
/// The collection comes from an API server, or from a file with --from. No object is kept in memory. After 10,000
/// fields and keys, or 10,000 namespaces, further ones are summed as `others`.
///
/// Sizes are in the list's encoding. A field in protobuf is its tag, its length and its value. A field in JSON is its
/// name, its value and the comma.
///
/// SHARE is relative to the bytes of all objects. PER ITEM divides by all objects. For a field, ITEMS is the number of
/// objects that have it.
#[derive(clap::Args)]
#[command(after_help = live::EXAMPLES, override_usage = live::USAGE)]
pub struct StatsArgs {
    #[command(flatten)]
    live: live::LiveArgs,

    /// Depth of fields to show. From depth 2, annotations are shown one by one
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number_in(1..=32_u8))]
    depth: u8,

    /// Number of rows for each table, and for the fields of each field. The rest are summed as `others`
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number_in(1..=u16::MAX))]
    top: u16,

    /// Show how many bytes dropping this field saves; repeat for several fields.
    ///
    /// The bytes are saved where objects are kept or printed: the server sends the field anyway. Examples: `status`,
    /// and `'metadata.annotations["KEY"]'`, quoted for the shell.
    #[arg(long, value_name = "PATH")]
    drop: Vec<String>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Table, value_name = "FORMAT")]
    output: ReportFormat,

    /// Also write an HTML page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ReportFormat {
    /// Tables for people
    Table,
    /// One JSON object, with sizes in bytes
    Json,
}

pub async fn run(args: StatsArgs) -> Result<(), Failure> {
    let stats = ListStats::new(args.top.into(), args.depth.into(), args.drop);
    let page = args.html.map(HtmlFile::create).transpose()?;
    if let Some(path) = args.live.whole_file() {
        // A pipe is read once, from front to back.
        let is_etcd = path.is_file() && listwatch_etcd::is_data_file(path).unwrap_or(false);
        if is_etcd {
            let report = UsageReport::read(path, args.top.into());
            let report = report.map_err(|error| Failure::Error(format!("{}: {error}", path.to_string_lossy())))?;
            return print_usage(&report, page, args.output);
        }
    }
    let (report, origin) = match args.live.whole_file() {
        Some(file) => {
            let name = if file == Path::new("-") { "stdin".into() } else { file.to_string_lossy() };
            let origin = args.live.origin_of_body(name.into_owned());
            (read_saved(stats, file, &args.live.item_filter()).await?, origin)
        }
        None => live::read_live(stats, args.live).await?,
    };
    if let Some(page) = page {
        page.write(&html::render_page(&report, &origin))?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match args.output {
        ReportFormat::Table => report.print_tables(&mut out)?,
        ReportFormat::Json => report.print_json(&mut out)?,
    }
    Ok(out.flush()?)
}

fn print_usage(report: &UsageReport, page: Option<HtmlFile>, format: ReportFormat) -> Result<(), Failure> {
    if let Some(page) = page {
        page.write(&report.render_page())?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match format {
        ReportFormat::Table => report.print_tables(&mut out)?,
        ReportFormat::Json => report.print_json(&mut out)?,
    }
    Ok(out.flush()?)
}

/// Reads a saved body.
async fn read_saved(mut stats: ListStats, file: &Path, filter: &ItemFilter) -> Result<StatsReport, Failure> {
    let SavedBody { source, reader } = SavedBody::open(Some(file)).await?;
    let mut items = ListStream::with(ReaderStream::with_capacity(reader, CHUNK), |item| {
        if filter.selects(&item)? {
            stats.add_item(&item)?;
        }
        Ok::<_, ItemError>(None)
    })
    .accept_json();
    let mut output = Output::without_items();
    let done = print_rows(&mut items, &mut output, &mut None, |items| decoder_progress(items.decoder())).await?;
    let error = done.err().map(|error| explain_error(&error, &source, items.decoder()));
    let end = items.end().cloned();
    drop(items);
    if let Some(error) = error {
        return Err(stats.failure(error));
    }
    let end = end.expect("without an error the list is complete");
    warn_of_more_pages(&end.list_meta);
    let report = stats.report(&end.type_meta, &end.list_meta, end.bytes);
    Ok(StatsReport { of_items: (!filter.is_empty()).then_some(end.items), ..report })
}

/// The page of `--html`: a temporary file, renamed to `path` once it is complete.
struct HtmlFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl HtmlFile {
    /// Creates the temporary file. Called before the list is read, so that an unwritable path fails early.
    fn create(path: PathBuf) -> Result<Self, Failure> {
        let temporary = create_beside(&path).map_err(|error| cannot_write(&path, &error))?;
        Ok(Self { temporary, path })
    }

    fn write(self, html: &str) -> Result<(), Failure> {
        let Self { mut temporary, path } = self;
        let written = temporary.write_all(html.as_bytes());
        written.and_then(|()| replace(&path, temporary)).map_err(|error| cannot_write(&path, &error))?;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Error(format!("cannot write {}: {error}", path.to_string_lossy()))
}
