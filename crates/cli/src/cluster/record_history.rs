//! `listwatch record --history`: records every change of collections.

use std::path::PathBuf;
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use indicatif::HumanCount;
use listwatch::client::{Client, Resource, Selection};
use listwatch::internal::chain;
use listwatch::schema::Message;
use listwatch::{Projection, TypeMeta};
use listwatch_cache::{ChangeLogLimits, FileError, PreparedReflector, Reflector, StorageFormat, Store};
use listwatch_history::{History, HistoryError, Recorder, RecorderStatus, SteadyClock, WriterOptions};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::at::zoned;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::query::SelectionArgs;
use crate::cluster::resource::find_resource;
use crate::failure::Failure;
use crate::field_paths::parse_drop_path;
use crate::notices;
use crate::signals::{end_slowly, interrupted};

/// How often changes are written. A crash loses what arrived since.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often the progress is printed.
const REPORT_EVERY: u32 = 120;

/// The options of a history.
#[derive(clap::Args)]
#[command(next_help_heading = "History")]
pub struct HistoryOptions {
    /// Record every change of the resources into this folder until Ctrl-C.
    ///
    /// Then all arguments are resources: `record --history DIR pods,deploy nodes -A`. The definitions of custom
    /// resources are recorded too. After a restart the recording continues without a gap, unless the collection is
    /// empty or the server has forgotten the changes since. Only its owner can read a new folder.
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,

    /// Drop what is older: 14d, 36h
    #[arg(long, value_name = "TIME", requires = "history", default_value = "14d")]
    keep: KeepArg,

    /// Drop the oldest part of the history when it exceeds this size: 30G, 500M
    #[arg(long, value_name = "SIZE", requires = "history", value_parser = parse_size)]
    max_size: Option<ByteSize>,

    /// Leave out a field of all objects: `metadata.managedFields`; repeatable.
    ///
    /// A state is then no longer what the server sent.
    #[arg(long, value_name = "PATH", requires = "history")]
    drop: Vec<String>,
}

/// A time in days, hours or minutes.
#[derive(Clone, Copy, Debug)]
struct KeepArg(Duration);

impl FromStr for KeepArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = [('d', 86_400), ('h', 3600), ('m', 60)].into_iter().find_map(|(unit, seconds)| {
            let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
            Some(Duration::from_secs(u64::from(number) * seconds))
        });
        parsed.filter(|time| !time.is_zero()).map(Self).ok_or("expected a number with a unit, such as 14d, 36h or 90m")
    }
}

fn parse_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|_| "expected a size such as 30G or 500M".to_owned())?;
    if size.as_u64() < 1 << 20 { Err("it must be at least 1M".to_owned()) } else { Ok(size) }
}

/// Records until the first signal.
pub async fn run(
    options: HistoryOptions,
    names: &[String],
    selection: &SelectionArgs,
    connection: ConnectionArgs,
) -> Result<(), Failure> {
    let Some(dir) = options.history.clone() else { return Ok(()) };
    if connection.from().is_some() {
        return Err(Failure::Usage("a history is recorded from a server: leave out --from".to_owned()));
    }
    let (client, default_namespace) = connection.client().await?;
    let namespace = selection.namespace(default_namespace);
    let resources = find_resources(&client, names).await?;
    let mut settings = WriterOptions::default();
    settings.keep = options.keep.0;
    settings.max_size = options.max_size.map(|size| size.as_u64());
    let opened = dir.clone();
    let opening = spawn_blocking(move || Recorder::open(opened, settings)).await;
    let mut recorder = opening.map_err(|_| failed())?.map_err(|error| failure(&error))?;
    if let Some(last) = recorder.status().last_time {
        notices::print_labelled("continuing:", &format!("the last record is of {}", zoned(last)));
    }
    for resource in resources {
        let mut reflector = reflector(&client, &resource, namespace.as_deref(), &options.drop)?;
        load(&dir, &resource, &mut reflector).await?;
        recorder.attach(reflector.spawn());
    }
    record_until_signal(recorder).await
}

fn failure(error: &HistoryError) -> Failure {
    Failure::Error(error.to_string())
}

fn failed() -> Failure {
    Failure::Error("the recorder has failed".to_owned())
}

/// Finds the resources of all arguments, and adds the definitions of custom resources.
async fn find_resources(client: &Client, names: &[String]) -> Result<Vec<Resource>, Failure> {
    let mut resources = Vec::new();
    for name in names.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty()) {
        let resource = find_resource(client, name).await?;
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    if !resources.contains(&Resource::CUSTOM_RESOURCE_DEFINITIONS) {
        resources.push(Resource::CUSTOM_RESOURCE_DEFINITIONS);
    }
    Ok(resources)
}

fn reflector(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    drop: &[String],
) -> Result<PreparedReflector<[u8]>, Failure> {
    let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
    // Without a schema, protobuf can be converted to nothing else.
    let has_schema = Message::of(&type_meta.api_version, type_meta.item_kind()).is_some();
    let selection = if has_schema { Selection::all() } else { Selection::all().json() };
    let reflector = Reflector::<[u8]>::new(client, resource)
        .selection(selection)
        .store(Store::new(StorageFormat::Compressed))
        .change_log(ChangeLogLimits::default());
    let reflector = match namespace.filter(|_| resource.is_namespaced()) {
        Some(namespace) => reflector.namespace(namespace),
        None => reflector,
    };
    let mut projection: Option<Projection> = None;
    for path in drop {
        let path = parse_drop_path(path, &type_meta).map_err(Failure::Usage)?;
        projection = Some(projection.unwrap_or_default().drop(&path));
    }
    Ok(match projection {
        Some(projection) => reflector.projection(projection),
        None => reflector,
    }
    .prepare())
}

/// Fills the cache with the last recorded state, so that its watch resumes there.
async fn load(
    dir: &std::path::Path,
    resource: &Resource,
    reflector: &mut PreparedReflector<[u8]>,
) -> Result<(), Failure> {
    if !History::is_history(dir) {
        return Ok(());
    }
    let file = dir.join(format!("resume-{resource}.cache"));
    let (of_task, to_file) = ((dir.to_owned(), resource.clone()), file.clone());
    let filled = spawn_blocking(move || -> Result<Option<Store<[u8]>>, HistoryError> {
        let (dir, resource) = of_task;
        let store = Store::new(StorageFormat::Compressed);
        Ok(History::open(dir)?.fill(&resource, &store)?.map(|_| store))
    });
    let store = match filled.await.map_err(|_| failed())? {
        Ok(Some(store)) => store,
        Ok(None) => return Ok(()),
        Err(error) => {
            notices::warn(&format!("{resource}: the watch cannot resume: {error}"));
            return Ok(());
        }
    };
    let saved = reflector.save_store(&to_file, &store);
    drop(store);
    let loaded = match saved {
        Ok(()) => reflector.load(&file).await,
        Err(error) => Err(error),
    };
    _ = std::fs::remove_file(&file);
    match loaded {
        // A collection without objects.
        Ok(()) | Err(FileError::Unknown) => Ok(()),
        Err(error @ FileError::OtherHistory { .. }) => {
            let reason = format!("{}: the history is of another cluster: {}", dir.display(), chain(&error));
            Err(Failure::Error(format!("{reason}; record into another folder")))
        }
        Err(error) => {
            notices::warn(&format!("{resource}: the watch cannot resume: {}", chain(&error)));
            Ok(())
        }
    }
}

async fn record_until_signal(recorder: Recorder) -> Result<(), Failure> {
    let mut clock = SteadyClock::default();
    let mut interrupted = pin!(interrupted());
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    end_slowly();
    let (mut recorder, mut count, mut following) = (recorder, 0_u32, 0);
    loop {
        let is_last = tokio::select! {
            () = &mut interrupted => true,
            _ = ticks.tick() => false,
        };
        let now = clock.now();
        let ticked = spawn_blocking(move || {
            let done = recorder.tick(now);
            (recorder, done)
        });
        let (back, done) = ticked.await.map_err(|_| failed())?;
        recorder = back;
        done.map_err(|error| failure(&error))?;
        let status = recorder.status();
        if is_last {
            report("recorded:", status);
            return Ok(());
        }
        if status.following != following {
            following = status.following;
            report("recording:", status);
        }
        count += 1;
        if count.is_multiple_of(REPORT_EVERY) {
            report("recording:", status);
        }
    }
}

fn report(word: &str, status: &RecorderStatus) {
    let RecorderStatus { changes, gaps, following, bytes, .. } = status;
    let (changes, collections) = (HumanCount(*changes), if *following == 1 { "collection" } else { "collections" });
    let gaps = match gaps {
        0 => String::new(),
        1 => ", 1 gap".to_owned(),
        gaps => format!(", {gaps} gaps"),
    };
    let paused = status.paused.as_ref().map(|error| format!("; paused: {error}")).unwrap_or_default();
    let text = format!("{changes} changes of {following} {collections}{gaps}, {} in all{paused}", ByteSize(*bytes));
    notices::print_labelled(word, &text);
}
