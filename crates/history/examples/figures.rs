//! Measures what a history takes: `cargo run --release -p listwatch-history --example figures [PODS] [CHANGES] [DIR]`.
//!
//! Diverse Pods change as kubelets change them: half of the changes have two new container ids, the others a condition.
//! Beside the history it measures whole bodies, as a poller keeps them, and JSON lines compressed with zstd.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_pb::api::core::v1::Pod;
use k8s_pb::apimachinery::pkg::apis::meta::v1::Time;
use listwatch::client::Resource;
use listwatch::{Encoding, Event, ItemRef, ListDecoder, StoreType, TypeMeta};
use listwatch_cache::{CacheWriter, ChangeLogLimits};
use listwatch_history::{ChangeQuery, History, PastEvent, Point, Recorder, WriterOptions};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The changes in a commit: of one second.
const RATE: u64 = 100;
const DAY: u64 = 86_400;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(Ok(default), |text| text.parse());
    let (count, changes) = (number(10_000)?, number(100_000)?);
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("history");
    let mut pods = corpus(u32::try_from(count)?)?;
    let writer = CacheWriter::<[u8]>::new(&Resource::PODS).change_log(ChangeLogLimits::default());
    for pod in &pods {
        writer.apply(Encoding::Protobuf, &<Pod as StoreType>::encode(pod)?)?;
    }
    let mut recorder = Recorder::open(&dir, WriterOptions::default())?;
    recorder.attach(writer.cache());
    let start = Timestamp::from_second(1_800_000_000)?;
    let (at, written) = (cpu()?, write_bytes()?);
    recorder.tick(start)?;
    let base = size(&dir)?;
    println!(
        "base: {count} Pods, {} bytes each, {:.0} us of CPU each",
        base / count,
        micros(cpu()?.saturating_sub(at), count)
    );
    println!("  memory {} MB", memory()?);

    let mut random = fastrand::Rng::with_seed(7);
    let (mut ticking, mut proto, mut json, mut lines) = (Duration::ZERO, 0, 0, Lines::new());
    let mut wrote = write_bytes()? - written;
    for change in 0..changes {
        let pod = &mut pods[random.usize(..usize::try_from(count)?)];
        mutate(pod, &mut random, count + 10 + change, i64::try_from(1_800_000_000 + change / RATE)?);
        let bytes = <Pod as StoreType>::encode(pod)?;
        writer.apply(Encoding::Protobuf, &bytes)?;
        proto += bytes.len() as u64;
        if change.is_multiple_of(20) {
            let mut text = Vec::new();
            ItemRef::new(Encoding::Protobuf, &bytes).with_type_meta(&TypeMeta::new("v1", "Pod")).to_json(&mut text)?;
            json += 20 * text.len() as u64;
            lines.add(&text)?;
        }
        if change % RATE == RATE - 1 {
            let (before, io) = (cpu()?, write_bytes()?);
            recorder.tick(start + SignedDuration::from_secs(i64::try_from(1 + change / RATE)?))?;
            ticking += cpu()?.saturating_sub(before);
            wrote += write_bytes()? - io;
        }
    }
    drop(recorder);
    let stored = size(&dir)?;
    let rows = rows(&dir)?;
    let each = |bytes: u64| bytes as f64 / changes as f64;
    println!("changes: {changes}, of {:.0} bytes in protobuf and {:.0} in JSON", each(proto), each(json));
    println!(
        "  stored {:.1} bytes a change, with the base; {:.1} without",
        each(stored),
        each(stored.saturating_sub(base))
    );
    println!(
        "  of these, {:.1} in rows: SQLite takes {:.2} times their bytes",
        each(rows),
        stored as f64 / rows as f64
    );
    println!("  written {:.1} times what is stored", wrote as f64 / stored as f64);
    println!(
        "  {:.0} us of CPU a change, memory {} MB with the compressor's Pods",
        micros(ticking, changes),
        memory()?
    );
    println!("  whole bodies {:.0} bytes a change, JSON lines with zstd {:.0}", each(json), lines.each());
    // A part has the base of 50,000 Pods and a million changes.
    let part = 1e6 * each(stored.saturating_sub(base)) + 50_000.0 * base as f64 / count as f64;
    println!("  14 days at 100 changes a second: {:.1} GB, calculated", part * (14 * DAY * RATE) as f64 / 1e6 / 1e9);
    reads(&dir, &pods, start, changes, &mut random)
}

/// Reads objects at random times, a whole list, and the log of 15 minutes.
fn reads(dir: &Path, pods: &[Pod], start: Timestamp, changes: u64, random: &mut fastrand::Rng) -> Result<()> {
    let history = History::open(dir)?;
    let begun = Instant::now();
    let point = Point::Time(start + SignedDuration::from_secs(i64::try_from(changes / RATE / 2)?));
    let past = history.at(&Resource::PODS, &point)?;
    println!("open: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    _ = past.get(("none", "none"))?;
    let begun = Instant::now();
    for _ in 0..1000 {
        let meta = random.choice(pods).and_then(|pod| pod.metadata.as_ref()).ok_or("no metadata")?;
        past.get((meta.namespace(), meta.name()))?.ok_or("no Pod")?;
    }
    println!("get: {:.0} us each", begun.elapsed().as_secs_f64() * 1e3);
    let (begun, before) = (Instant::now(), memory()?);
    let listed = past.iter().try_fold(0_u64, |listed, object| object.map(|_| listed + 1))?;
    println!("list: {listed} Pods in {:.2} s, memory {before} to {} MB", begun.elapsed().as_secs_f64(), memory()?);
    let end = start + SignedDuration::from_secs(i64::try_from(changes / RATE)?);
    let mut query = ChangeQuery::new(Resource::PODS);
    query.after = Some(Point::Time(end - SignedDuration::from_mins(15)));
    let begun = Instant::now();
    let mut found = 0;
    for event in history.changes(query)? {
        found += u64::from(matches!(event?, PastEvent::Change(_)));
    }
    println!("changes of 15 minutes: {found} in {:.2} s, memory {} MB", begun.elapsed().as_secs_f64(), memory()?);
    Ok(())
}

fn corpus(count: u32) -> Result<Vec<Pod>> {
    let body = listwatch_corpus::pods(count);
    let (mut decoder, mut input, mut pods) = (ListDecoder::new(), &body[..], Vec::new());
    while let Some(event) = decoder.decode(&mut input)? {
        if let Event::Item(item) = event {
            let mut pod = <Pod as StoreType>::decode(item)?;
            let version = (pods.len() + 2).to_string();
            pod.metadata.get_or_insert_default().resource_version = Some(version);
            pods.push(pod);
        }
    }
    Ok(pods)
}

fn mutate(pod: &mut Pod, random: &mut fastrand::Rng, version: u64, seconds: i64) {
    let time = Some(Time { seconds: Some(seconds), nanos: Some(0) });
    let metadata = pod.metadata.get_or_insert_default();
    metadata.resource_version = Some(version.to_string());
    if let Some(entry) = metadata.managed_fields.last_mut() {
        entry.time = time;
    }
    let status = pod.status.get_or_insert_default();
    if random.bool() {
        for container in status.container_statuses.iter_mut().take(2) {
            container.container_id = Some(format!("containerd://{:032x}{:032x}", random.u128(..), random.u128(..)));
            container.restart_count = Some(container.restart_count.unwrap_or_default() + 1);
        }
    } else if let Some(condition) = status.conditions.last_mut() {
        condition.status = Some(if condition.status.as_deref() == Some("True") { "False" } else { "True" }.to_owned());
        condition.last_transition_time = time;
    }
}

/// JSON lines, compressed as a stream, of a sample of the changes.
struct Lines {
    context: zstd_safe::CCtx<'static>,
    out: Vec<u8>,
    bytes: u64,
    count: u64,
}

impl Lines {
    fn new() -> Self {
        Self { context: zstd_safe::CCtx::create(), out: Vec::with_capacity(1 << 20), bytes: 0, count: 0 }
    }

    fn add(&mut self, text: &[u8]) -> Result<()> {
        let mut input = zstd_safe::InBuffer::around(text);
        let fault = |code| zstd_safe::get_error_name(code).to_owned();
        while input.pos < text.len() {
            self.out.clear();
            let mut out = zstd_safe::OutBuffer::around(&mut self.out);
            self.context
                .compress_stream2(&mut out, &mut input, zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush)
                .map_err(fault)?;
            self.bytes += out.pos() as u64;
        }
        self.count += 1;
        Ok(())
    }

    fn each(&self) -> f64 {
        self.bytes as f64 / self.count as f64
    }
}

fn micros(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

/// Returns the CPU time of this thread.
fn cpu() -> Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?))
}

/// Returns the bytes that this process has written.
fn write_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).ok_or("no wchar")?;
    Ok(line.parse()?)
}

/// Returns the resident memory in MB.
fn memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1000)
}

/// Returns the bytes of all rows, which files of another format would need too.
fn rows(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "db") {
            let part = rusqlite::Connection::open(&path)?;
            for table in ["meta", "collections", "dictionaries", "base", "tail", "periods", "sealed"] {
                let text = format!("SELECT coalesce(sum(length(data)), 0) FROM {table}");
                sum += part.query_row(&text, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
            }
            let text = "SELECT coalesce(sum(length(data) + length(key)), 0) FROM objects";
            sum += part.query_row(text, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
        }
    }
    Ok(sum)
}

fn size(dir: &Path) -> Result<u64> {
    let sizes = fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum()
}
