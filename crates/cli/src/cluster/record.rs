//! `listwatch record`: saves the body of a list as the API server sent it.

use std::io::Write;
use std::mem;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use indicatif::HumanCount;
use listwatch::ItemRef;
use listwatch::client::{
    Client, Compression, HttpTransport, Request, ResponseFuture, Transport, TransportError, TransportErrorKind,
};
use tempfile::NamedTempFile;

use crate::cluster::connect::ConnectionArgs;
use crate::cluster::listing::{list_failure, list_progress, print_warnings};
use crate::cluster::query::QueryArgs;
use crate::cluster::record_history::{self, HistoryOptions};
use crate::cluster::resource::find_common;
use crate::failure::Failure;
use crate::notices;
use crate::output::{Output, print_rows};
use crate::partial_file::{create_beside, replace};

/// Save the body of a list, byte for byte, or record every change of collections.
///
/// With --history, the command records all changes of the resources into a folder, until Ctrl-C: read it with `get
/// --from DIR --at TIME`, `log`, `diff` and `mirror --from DIR --at TIME`. Without, it saves one list:
///
/// FILE receives the bytes that the server sent, uncompressed: Kubernetes protobuf, or JSON for custom resources. The
/// body is written to a temporary file next to FILE, which only its owner can read. The temporary file replaces FILE
/// once the list is complete. An existing FILE keeps its permissions, and if it is a symbolic link, the file that it
/// leads to is replaced.
///
/// The body is one response, so a collection that takes longer than the server's request timeout (60 s) cannot be
/// recorded whole. Record each namespace with -n into a file of its own, or use `stats --chunk-size`. `get --from`
/// and `stats --from` read one file at a time, or a folder of them.
///
/// If the server does not support --shard, FILE contains the items of all shards.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch record pods -A pods.pb                 then: listwatch get pods --from pods.pb
  listwatch record secrets -A --metadata-only secrets.pb
  listwatch record --history DIR pods,deploy,nodes,events,widgets.example.com -A --keep 14d --max-size 30G")]
pub struct RecordArgs {
    #[command(flatten)]
    query: QueryArgs,

    /// File to write the body to; with --history, more resources
    #[arg(value_name = "FILE", required_unless_present = "history")]
    rest: Vec<String>,

    #[command(flatten)]
    history: HistoryOptions,

    #[command(flatten)]
    connection: ConnectionArgs,
}

impl RecordArgs {
    /// Returns true if changes are recorded until a signal.
    pub fn is_history(&self) -> bool {
        self.history.history.is_some()
    }
}

/// Returns true for a text that names a resource of every server, and no path.
fn is_resource_name(text: &str) -> bool {
    text.split(',').any(|name| find_common(name).is_some())
}

const REMEDY: Option<&str> = Some("record each namespace with -n, or use `stats --chunk-size`");

pub async fn run(args: RecordArgs) -> Result<(), Failure> {
    let RecordArgs { query, rest, history, connection } = args;
    if history.history.is_some() {
        let selection = &query.selection;
        if !selection.selects_all() || selection.is_metadata_only() || query.version.is_given() {
            let fault = "a history has all objects whole: use no selector, --metadata-only or --resource-version";
            return Err(Failure::Usage(fault.to_owned()));
        }
        let names: Vec<_> = [selection.resource().to_owned()].into_iter().chain(rest).collect();
        return record_history::run(history, &names, selection, connection).await;
    }
    let file = match &*rest {
        [file] if is_resource_name(file) => {
            let fault = "is a resource: write `--history DIR` to record several, or `./` before the name of a file";
            return Err(Failure::Usage(format!("{file} {fault}")));
        }
        [file] => PathBuf::from(file),
        _ => return Err(Failure::Usage("name one FILE, or record several resources with --history DIR".to_owned())),
    };
    if file.as_os_str() == "-" {
        return Err(Failure::Usage("FILE must be a file: `record` does not write to stdout".to_owned()));
    }
    if file.extension().is_some_and(|extension| extension == "gz") {
        notices::warn(&format!("{}: the body is saved as it arrived, uncompressed", file.to_string_lossy()));
    }
    let selection = query.selection.selection();
    let cannot_write = |error| Failure::Error(format!("cannot write {}: {error}", file.to_string_lossy()));
    let (server, namespace) = connection.transport().await?;
    let recording = Recording::default();
    let transport = RecordingTransport { server, recording: recording.clone() };
    let client = Client::new(transport).compression(Compression::Identity);
    let nothing = |_: ItemRef<'_>| Ok::<_, listwatch::ItemError>(None);
    let list = query.list(&client, selection, None, namespace, nothing).await?;

    let temporary = create_beside(&file).map_err(cannot_write)?;
    *recording.lock() = RecordingState::On(temporary);
    let progress = list.progress();
    // FILE has one body, so the client must not request another page.
    let mut items = list.single_page(None);
    let done = print_rows(&mut items, &mut Output::without_items(), &mut None, |_| list_progress(&progress)).await?;
    let temporary = match mem::take(&mut *recording.lock()) {
        RecordingState::On(temporary) => temporary,
        RecordingState::Failed(error) => return Err(cannot_write(error)),
        RecordingState::Off => unreachable!("the recording was on"),
    };
    done.map_err(|error| list_failure(&error, REMEDY))?;
    let summary = items.summary().expect("without an error the page is complete");
    if !summary.list_meta.continue_token.is_empty() {
        let items = summary.items;
        let reason =
            format!("the server sent only a page of {items} items, and a continue token: nothing was recorded");
        return Err(Failure::Error(format!("{reason}; use `stats --chunk-size`")));
    }
    temporary.as_file().sync_all().map_err(cannot_write)?;
    replace(&file, temporary).map_err(cannot_write)?;
    print_warnings(summary);
    let (items, bytes) = (HumanCount(summary.items), HumanCount(summary.bytes));
    let version = &summary.list_meta.resource_version;
    notices::print_line(format_args!("recorded: {items} items, {bytes} bytes, version {version}"));
    Ok(())
}

/// The destination of the body.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<RecordingState>>);

/// Where responses go.
#[derive(Default)]
enum RecordingState {
    /// The client is not reading the list: responses are not recorded.
    #[default]
    Off,
    On(NamedTempFile),
    Failed(std::io::Error),
}

impl Recording {
    fn lock(&self) -> MutexGuard<'_, RecordingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change to the file, if the recording is on.
    fn change_file(
        &self,
        change: impl FnOnce(&mut NamedTempFile) -> std::io::Result<()>,
    ) -> Result<(), TransportError> {
        let mut state = self.lock();
        let RecordingState::On(file) = &mut *state else { return Ok(()) };
        change(file).map_err(|error| {
            *state = RecordingState::Failed(error);
            TransportError::new(TransportErrorKind::Other, "the file cannot be written")
        })
    }

    /// Empties the file before a request, which may be a retry.
    fn begin(&self) -> Result<(), TransportError> {
        self.change_file(|file| {
            file.as_file().set_len(0)?;
            std::io::Seek::rewind(file)
        })
    }

    fn write(&self, chunk: &[u8]) -> Result<(), TransportError> {
        self.change_file(|file| file.write_all(chunk))
    }
}

/// A transport that records each body before the client decodes it.
struct RecordingTransport {
    server: HttpTransport,
    recording: Recording,
}

impl Transport for RecordingTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            self.recording.begin()?;
            let mut response = self.server.get(request).await?;
            let recording = self.recording.clone();
            let written = response.body.map(move |chunk| {
                let chunk = chunk?;
                recording.write(&chunk)?;
                Ok(chunk)
            });
            response.body = Box::pin(written) as Pin<Box<_>>;
            Ok(response)
        })
    }

    fn is_near(&self) -> bool {
        self.server.is_near()
    }

    fn renews_credentials(&self) -> bool {
        self.server.renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        self.server.redact(text)
    }

    fn server(&self) -> Option<String> {
        self.server.server()
    }
}
