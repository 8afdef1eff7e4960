//! `listwatch record`: a list as the API server wrote it.

use std::io::Write;
use std::mem;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use indicatif::HumanCount;
use listwatch::ItemRef;
use listwatch::client::transport::{Request, ResponseFuture};
use listwatch::client::{Client, Compression, Transport, TransportError, TransportErrorKind};
use tempfile::NamedTempFile;

use crate::cluster::connect::{Connection, Server};
use crate::cluster::query::{self, Query};
use crate::failure::{Failure, chain};
use crate::output::{Format, Output, Row, temporary_beside};
use crate::rows;

/// Saves the body of a list, byte for byte.
///
/// The server is asked for no compression, so that FILE is what it wrote: Kubernetes protobuf, or JSON for custom
/// resources, and with --shard all that it sent. It is written to a temporary file beside FILE, only its owner may read it,
/// and it takes the place of FILE once the list is complete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch record pods -A pods.pb                 then: listwatch decode pods.pb
  listwatch record secrets -A --metadata-only secrets.pb")]
pub struct Args {
    #[command(flatten)]
    query: Query,

    /// Where to
    file: PathBuf,

    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let Args { query, file, connection } = args;
    let options = query.options()?;
    let cannot_write = |error| Failure::Error(format!("cannot write {}: {error}", file.to_string_lossy()));
    let (server, namespace) = connection.open().await?;
    let recording = Recording::default();
    let recorder = Recorder { server, recording: recording.clone() };
    let client = Client::new(recorder).compression(Compression::Identity);
    let list = query.list(&client, &options, None, namespace).await?;

    let temporary = temporary_beside(&file).map_err(cannot_write)?;
    *recording.lock() = State::On(temporary);
    let progress = list.progress();
    let nothing = |_: ItemRef<'_>| Ok::<_, listwatch::ItemError>(Row::Nothing);
    let mut items = list.map_item(nothing).stream();
    let done = rows::print(&mut items, &mut Output::new(Format::Summary), |_| query::reached(&progress)).await?;
    let temporary = match mem::take(&mut *recording.lock()) {
        State::On(temporary) => temporary,
        State::Failed(error) => return Err(cannot_write(error)),
        State::Off => unreachable!("it was on"),
    };
    done.map_err(|error| Failure::Error(chain(&error)))?;
    let summary = items.summary().expect("without an error the list is complete");
    temporary.as_file().sync_all().map_err(cannot_write)?;
    temporary.persist(&file).map_err(|error| cannot_write(error.error))?;
    query::warn(summary);
    let (items, bytes) = (HumanCount(summary.items), HumanCount(summary.bytes));
    eprintln!("recorded: {items} items, {bytes} bytes, version {}", summary.list_meta.resource_version);
    Ok(())
}

/// Where the body goes that is being received.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    /// What is received is no list.
    #[default]
    Off,
    On(NamedTempFile),
    Failed(std::io::Error),
}

impl Recording {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does it, if there is a file.
    fn file(&self, what: impl FnOnce(&mut NamedTempFile) -> std::io::Result<()>) -> Result<(), TransportError> {
        let mut state = self.lock();
        let State::On(file) = &mut *state else { return Ok(()) };
        what(file).map_err(|error| {
            *state = State::Failed(error);
            TransportError::new(TransportErrorKind::Other, "the file cannot be written")
        })
    }

    /// From the start: this is the first request, or the one before failed.
    fn begin(&self) -> Result<(), TransportError> {
        self.file(|file| {
            file.as_file().set_len(0)?;
            std::io::Seek::rewind(file)
        })
    }

    fn write(&self, chunk: &[u8]) -> Result<(), TransportError> {
        self.file(|file| file.write_all(chunk))
    }
}

/// Writes down each body before it is read.
struct Recorder {
    server: Server,
    recording: Recording,
}

impl Transport for Recorder {
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
}
