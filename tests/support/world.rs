//! A model of an API server that holds ConfigMaps, and a transport to it with the faults of a network.
//!
//! A seed determines all of it, in paused time.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::client::{Request, Response, ResponseFuture};
use listwatch::client::{Transport, TransportError, TransportErrorKind};
use tokio::sync::watch;
use tokio::time::sleep;

use super::seeds::each_seed;
use super::{body_of, config_map, event_frame, len_field, status};

/// An object as the consumer should see it: its uid, which differs from earlier objects of its name, and its version.
pub type Object = (u64, String);
pub type Objects = BTreeMap<String, Object>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: Kind,
    pub name: String,
    pub uid: u64,
    /// The version at which it happened.
    at: u64,
    /// The version in the object, which is older for some deletions.
    pub version: String,
}

/// The version of the empty server. It is not 0, because 0 is no version.
const FIRST: u64 = 90;

/// The properties of this server.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are of different things, and any may be with any")]
pub struct Habits {
    /// What it does with `sendInitialEvents`.
    pub initial_events: InitialEvents,
    /// Versions are not numbers.
    pub opaque: bool,
    /// It sends bookmarks, once a minute.
    pub bookmarks: bool,
    /// Some deletions share a version, as when a lease expires.
    pub shares_versions: bool,
    /// The percentage of watches that it interrupts. Other faults are less frequent.
    pub faults: u32,
    /// It is restored from a backup now and then.
    pub goes_back: bool,
    /// It answers lists from a cache that lags, unless the most recent state is requested.
    pub lags: bool,
    /// It sends only the shard that is requested.
    pub shards: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialEvents {
    Known,
    Refused,
    /// The bookmark at their end is never sent.
    Endless,
}

#[derive(Clone)]
pub struct World(Arc<Mutex<State>>, watch::Sender<u64>);

struct State {
    rng: Rng,
    habits: Habits,
    history: Vec<Change>,
    /// The last version.
    now: u64,
    /// The server has forgotten the changes up to this version.
    forgotten: u64,
    objects: BTreeMap<String, (u64, u64)>,
    uids: u64,
    /// No more faults.
    calm: bool,
    requests: u32,
    /// The number of times it was restored.
    restored: u32,
    /// Connections outlived the last restore.
    outlived: bool,
    lists: u32,
    /// Is called with each change, before any watch delivers it.
    writer: Option<Arc<ChangeWriter>>,
}

type ChangeWriter = dyn Fn(&Change) + Send + Sync;

/// Runs this number of schedules in paused time, or only the schedule of `SEED`. A failure prints the seed and the
/// server. Returns true if it ran all.
pub fn each_schedule(schedules: u64, mut run: impl AsyncFnMut(u64)) -> bool {
    each_seed(schedules, |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = AssertUnwindSafe(|| runtime.block_on(run(seed)));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("failed with the server {:?}", World::new(seed).habits());
            resume_unwind(panic);
        }
    })
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let opaque = rng.u8(..10) == 0;
        let habits = Habits {
            initial_events: match rng.u8(..4) {
                0 => InitialEvents::Refused,
                1 => InitialEvents::Endless,
                _ => InitialEvents::Known,
            },
            opaque,
            bookmarks: rng.u8(..4) > 0,
            shares_versions: false,
            faults: [0, 30, 90][rng.usize(..3)],
            goes_back: false,
            lags: false,
            shards: false,
        };
        let state = State {
            rng,
            habits,
            history: Vec::new(),
            now: FIRST,
            forgotten: 0,
            objects: BTreeMap::new(),
            uids: 0,
            calm: false,
            requests: 0,
            restored: 0,
            outlived: false,
            lists: 0,
            writer: None,
        };
        let world = Self(Arc::new(Mutex::new(state)), watch::Sender::new(0));
        let changes = world.lock().rng.u32(..8);
        (0..changes).for_each(|_| world.change());
        world
    }

    /// A server that is restored from a backup now and then, unless its versions are opaque: a client could not notice
    /// it.
    pub fn that_goes_back(seed: u64) -> Self {
        let world = Self::new(seed);
        let mut state = world.lock();
        state.habits.goes_back = !state.habits.opaque;
        drop(state);
        world
    }

    /// A server on which some deletions share a version.
    pub fn that_shares_versions(seed: u64) -> Self {
        let world = Self::new(seed);
        world.lock().habits.shares_versions = true;
        world
    }

    /// Lets the server lag, and calls `writer` with each change, as if a controller had made it that gets the answer
    /// before any watch delivers the change.
    pub fn written_by(&self, writer: impl Fn(&Change) + Send + Sync + 'static) {
        let mut state = self.lock();
        state.habits.lags = true;
        state.writer = Some(Arc::new(writer));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Returns the number of changes up to this version.
    pub fn changes_until(&self, version: &str) -> usize {
        let state = self.lock();
        let at = at(version);
        state.history.iter().take_while(|change| change.at <= at).count()
    }

    /// Returns the change after this number of changes.
    pub fn change_after(&self, changes: usize) -> Option<Change> {
        self.lock().history.get(changes).cloned()
    }

    /// Returns the objects that existed at this version.
    pub fn objects_at(&self, version: &str) -> Objects {
        let state = self.lock();
        let at = at(version);
        let mut objects = Objects::new();
        for change in state.history.iter().take_while(|change| change.at <= at) {
            change.apply(&mut objects);
        }
        objects
    }

    /// Returns the objects after each change of this version, and after each of the deletions without a version of
    /// their own that follow.
    pub fn states_at(&self, version: &str) -> Vec<Objects> {
        let state = self.lock();
        let (version, mut objects, mut states) = (at(version), Objects::new(), Vec::new());
        let (before, after): (Vec<_>, Vec<_>) = state.history.iter().partition(|change| change.at < version);
        for change in before {
            change.apply(&mut objects);
        }
        if after.first().is_none_or(|change| change.at > version) {
            states.push(objects.clone());
        }
        for change in after.iter().take_while(|change| change.at == version || at(&change.version) < change.at) {
            change.apply(&mut objects);
            states.push(objects.clone());
        }
        states
    }

    pub fn version(&self) -> String {
        let state = self.lock();
        state.version(state.now)
    }

    pub fn habits(&self) -> Habits {
        self.lock().habits.clone()
    }

    pub fn knows_shards(&self, knows: bool) {
        self.lock().habits.shards = knows;
    }

    pub fn sends_bookmarks(&self) -> bool {
        self.lock().habits.bookmarks
    }

    /// Returns true once no more changes and faults happen.
    pub fn is_calm(&self) -> bool {
        self.lock().calm
    }

    /// Returns the number of times it was restored from a backup.
    pub fn restored(&self) -> u32 {
        self.lock().restored
    }

    pub fn requests(&self) -> u32 {
        self.lock().requests
    }

    /// Returns the number of requests for the whole collection.
    pub fn lists(&self) -> u32 {
        self.lock().lists
    }

    /// Changes objects for a while, and then becomes calm: objects stay the same, and connections have no more faults.
    pub async fn live(self) {
        let changes = self.lock().rng.u32(..40);
        for _ in 0..changes {
            let pause = {
                let rng = &mut self.lock().rng;
                match rng.u8(..10) {
                    0 => rng.u64(..400_000),
                    1..=3 => rng.u64(..5000),
                    _ => 0,
                }
            };
            sleep(Duration::from_millis(pause)).await;
            self.change();
            if self.lock().rng.u8(..15) == 0 {
                let mut state = self.lock();
                let some = state.forgotten..=state.now;
                state.forgotten = state.rng.u64(some);
            }
            let goes_back = self.lock().habits.goes_back && self.lock().rng.u8(..10) == 0;
            if goes_back {
                self.lock().go_back();
                self.1.send_modify(|changes| *changes += 1);
                // Every earlier request is answered before the next change.
                sleep(Duration::from_secs(7000)).await;
            }
        }
        self.lock().calm = true;
        self.1.send_modify(|changes| *changes += 1);
    }

    fn change(&self) {
        let (writer, change) = {
            let mut state = self.lock();
            state.change();
            (state.writer.clone(), state.history.last().cloned())
        };
        if let (Some(writer), Some(change)) = (writer, change) {
            writer(&change);
        }
        self.1.send_modify(|changes| *changes += 1);
    }
}

impl Change {
    /// A change as a consumer sees it.
    pub fn seen(kind: Kind, name: String, uid: u64, version: String) -> Self {
        Self { kind, name, uid, at: 0, version }
    }

    /// Returns true if a consumer sees both the same.
    pub fn is(&self, other: &Self) -> bool {
        (self.kind, &self.name, self.uid, &self.version) == (other.kind, &other.name, other.uid, &other.version)
    }

    pub fn apply(&self, objects: &mut Objects) {
        match self.kind {
            Kind::Added | Kind::Modified => objects.insert(self.name.clone(), (self.uid, self.version.clone())),
            Kind::Deleted => objects.remove(&self.name),
        };
    }

    /// Returns true if the version of the object is the version at which the change happened.
    pub fn has_own_version(&self) -> bool {
        at(&self.version) == self.at
    }

    /// Returns the object, as the answer to a write has it.
    pub fn object(&self) -> Vec<u8> {
        config_map(&self.name, &self.uid.to_string(), &self.version)
    }

    fn frame(&self) -> Vec<u8> {
        let event = match self.kind {
            Kind::Added => "ADDED",
            Kind::Modified => "MODIFIED",
            Kind::Deleted => "DELETED",
        };
        event_frame(event, &object(&self.name, self.uid, &self.version))
    }
}

impl State {
    fn change(&mut self) {
        // Other resources have the versions in between.
        self.now += self.rng.u64(1..4);
        let name = format!("cm-{}", self.rng.u8(..6));
        let (kind, uid, version) = match self.objects.get(&name).copied() {
            None => {
                // A large step, so that their hashes are far apart.
                self.uids = self.uids.wrapping_add(0x9e37_79b9_7f4a_7c15);
                (Kind::Added, self.uids, self.now)
            }
            Some((uid, _)) if self.rng.bool() => (Kind::Modified, uid, self.now),
            Some((uid, version)) => {
                // Without its own version, a deletion that a restore undid is not recognizable.
                let has_own_version = self.habits.opaque || self.habits.goes_back || self.rng.bool();
                (Kind::Deleted, uid, if has_own_version { self.now } else { version })
            }
        };
        match kind {
            Kind::Deleted => self.objects.remove(&name),
            _ => self.objects.insert(name.clone(), (uid, version)),
        };
        let version = self.version(version);
        self.history.push(Change { kind, name, uid, at: self.now, version });
        if kind == Kind::Deleted && self.habits.shares_versions {
            for _ in 0..self.rng.u8(..4) {
                let Some((name, (uid, _))) = self.objects.pop_first() else { break };
                let version = self.version(self.now);
                self.history.push(Change { kind, name, uid, at: self.now, version });
            }
        }
    }

    fn go_back(&mut self) {
        let some = self.forgotten.max(FIRST)..=self.now;
        self.now = self.rng.u64(some);
        self.history.retain(|change| change.at <= self.now);
        let mut objects = Objects::new();
        self.history.iter().for_each(|change| change.apply(&mut objects));
        self.objects = objects.into_iter().map(|(name, (uid, version))| (name, (uid, at(&version)))).collect();
        self.restored += 1;
        self.outlived = self.rng.bool();
    }

    fn version(&self, at: u64) -> String {
        if self.habits.opaque { format!("v{at}") } else { at.to_string() }
    }

    fn chance(&mut self, percent: u32) -> bool {
        !self.calm && self.rng.u32(..100) < percent
    }
}

impl Transport for World {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let (world, query) = (self.clone(), Query::of(&request.path_and_query));
            let path = request.path_and_query.split('?').next().unwrap_or_default();
            let one = path.split_once("/configmaps/").map(|(_, name)| name.to_owned());
            let delay = {
                let mut state = self.lock();
                state.requests += 1;
                if state.chance(20) { state.rng.u64(..20_000) } else { 0 }
            };
            sleep(Duration::from_millis(delay)).await;
            self.answer(world, one.as_deref(), &query)
        })
    }
}

struct Query(BTreeMap<String, String>);

impl Query {
    fn of(path: &str) -> Self {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        Self(query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", |value| value)
    }

    /// The bounds in `shardRange(object.metadata.uid, '0x…', '0x…')`, percent-encoded.
    fn shard(&self) -> Option<Hashes> {
        let mut bounds = self.get("shardSelector").split("%270x").skip(1).map(|bound| {
            let (bound, _) = bound.split_once("%27").unwrap();
            u128::from_str_radix(bound, 16).unwrap()
        });
        Some(bounds.next()?..bounds.next()?)
    }
}

/// A range of FNV-1a hashes of uids.
type Hashes = Range<u128>;

pub fn hash(uid: u64) -> u128 {
    let mut hash = 14_695_981_039_346_656_037_u64;
    for byte in uid.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    hash.into()
}

fn is_in(shard: Option<&Hashes>, uid: u64) -> bool {
    shard.is_none_or(|hashes| hashes.contains(&hash(uid)))
}

impl World {
    fn answer(&self, world: Self, one: Option<&str>, query: &Query) -> Result<Response, TransportError> {
        let mut state = self.lock();
        let faults = state.habits.faults;
        if state.chance(faults / 3) {
            let kinds = [TransportErrorKind::Connect, TransportErrorKind::Broken, TransportErrorKind::ReadIdle];
            return Err(TransportError::new(kinds[state.rng.usize(..3)], ""));
        }
        if state.chance(faults / 3) {
            let codes = [401, 403, 404, 408, 429, 500, 502, 503, 504];
            let mut answer = error(codes[state.rng.usize(..codes.len())]);
            if state.rng.bool() {
                answer.headers.insert("retry-after", "7".parse().unwrap());
            }
            return Ok(answer);
        }
        let shard = query.shard().filter(|_| state.habits.shards);
        let version = query.get("resourceVersion");
        let is_ahead = query.get("watch") != "1" && !version.is_empty() && at(version) > state.now;
        if is_ahead {
            return Ok(too_large());
        }
        if let Some(name) = one {
            return Ok(state.one(name));
        }
        if query.get("watch") != "1" {
            state.lists += u32::from(query.get("limit") != "1");
            return Ok(state.list(version, shard.as_ref()));
        }
        let initial = query.get("sendInitialEvents") == "true";
        if initial && state.habits.initial_events == InitialEvents::Refused {
            return Ok(error(422));
        }
        state.lists += u32::from(initial);
        let at = if initial { state.now } else { at(version) };
        if at < state.forgotten {
            if state.rng.bool() {
                return Ok(error(410));
            }
            let body = event_frame("ERROR", &body_of("v1", "Status", &status(410)));
            return Ok(ok(Box::pin(stream::iter([Ok(Bytes::from(body))]))));
        }
        let mut pending = Vec::new();
        if initial {
            for (name, (uid, version)) in state.objects.iter().filter(|(_, (uid, _))| is_in(shard.as_ref(), *uid)) {
                pending.extend(event_frame("ADDED", &object(name, *uid, &state.version(*version))));
            }
        }
        let ends_after = state.rng.usize(1..3000);
        let end = state.chance(faults).then(|| [End::Close, End::Reset, End::Stall][state.rng.usize(..3)]);
        let timeout = Duration::from_secs(query.get("timeoutSeconds").parse().unwrap());
        let restored = state.restored;
        drop(state);
        let connection = Connection {
            restored,
            changes: self.1.subscribe(),
            world,
            at,
            pending,
            shard,
            initial,
            ends: end.map(|end| (ends_after, end)),
            deadline: tokio::time::Instant::now() + timeout,
        };
        Ok(ok(Box::pin(stream::unfold(connection, Connection::next))))
    }
}

impl State {
    fn one(&self, name: &str) -> Response {
        let Some((uid, version)) = self.objects.get(name) else { return error(404) };
        ok(Box::pin(stream::iter([Ok(Bytes::from(object(name, *uid, &self.version(*version))))])))
    }

    /// Answers a list of at least this version; of the most recent version, if it is empty.
    fn list(&mut self, least: &str, shard: Option<&Hashes>) -> Response {
        let lags = self.habits.lags && !least.is_empty() && self.rng.bool();
        let now = if lags { self.rng.u64(at(least).max(FIRST)..=self.now) } else { self.now };
        let mut list_meta = len_field(2, self.version(now).as_bytes());
        if let Some(Hashes { start, end }) = shard {
            let selector = format!("shardRange(object.metadata.uid, '0x{start:016x}', '0x{end:016x}')");
            list_meta.extend(len_field(5, &len_field(1, selector.as_bytes())));
        }
        let mut raw = len_field(1, &list_meta);
        let mut objects = Objects::new();
        self.history.iter().take_while(|change| change.at <= now).for_each(|change| change.apply(&mut objects));
        for (name, (uid, version)) in objects.iter().filter(|(_, (uid, _))| is_in(shard, *uid)) {
            raw.extend(len_field(2, &config_map(name, &uid.to_string(), version)));
        }
        let mut body = body_of("v1", "ConfigMapList", &raw);
        let faults = self.habits.faults;
        if self.chance(faults / 2) {
            body.truncate(self.rng.usize(..body.len()));
        }
        let pieces: Vec<_> =
            body.chunks(self.rng.usize(1..200)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let pause = if self.chance(30) { self.rng.u64(..60) } else { 0 };
        ok(Box::pin(stream::iter(pieces).then(move |piece| async move {
            sleep(Duration::from_secs(pause)).await;
            piece
        })))
    }
}

fn at(version: &str) -> u64 {
    version.trim_start_matches('v').parse().unwrap()
}

#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    Stall,
}

/// An open watch.
struct Connection {
    world: World,
    /// The number of times that the server was restored before it was opened.
    restored: u32,
    changes: watch::Receiver<u64>,
    /// The version up to which all changes are in `pending` or sent.
    at: u64,
    pending: Vec<u8>,
    /// The objects whose changes it sends.
    shard: Option<Hashes>,
    /// The end of the initial events is not sent yet.
    initial: bool,
    /// The number of bytes after which it ends, and how; else it ends at `deadline`.
    ends: Option<(usize, End)>,
    deadline: tokio::time::Instant,
}

impl Connection {
    async fn next(mut self) -> Option<(Result<Bytes, TransportError>, Self)> {
        loop {
            let was_restored = |state: &State| state.restored != self.restored && !state.outlived;
            if was_restored(&self.world.lock()) {
                return None;
            }
            if let Some((0, end)) = self.ends {
                match end {
                    End::Close => return None,
                    End::Reset => {
                        self.ends = Some((0, End::Close));
                        return Some((Err(TransportError::new(TransportErrorKind::Broken, "reset")), self));
                    }
                    End::Stall => std::future::pending::<()>().await,
                }
            }
            if !self.pending.is_empty() {
                let most = self.ends.map_or(usize::MAX, |(after, _)| after).min(self.pending.len());
                let piece = self.world.lock().rng.usize(1..=most.min(300));
                if let Some((after, _)) = &mut self.ends {
                    *after -= piece;
                }
                let piece = self.pending.drain(..piece).collect::<Vec<_>>();
                return Some((Ok(piece.into()), self));
            }
            self.changes.mark_unchanged();
            if self.gather() {
                continue;
            }
            let bookmark = if self.world.lock().habits.bookmarks { 60 } else { 1_000_000 };
            let minute = sleep(Duration::from_secs(bookmark));
            tokio::select! {
                _ = self.changes.changed() => {}
                () = minute => self.bookmark(false),
                () = tokio::time::sleep_until(self.deadline) => return None,
            }
        }
    }

    /// Adds the changes since the last call to `pending`. Returns true if there is something to send.
    fn gather(&mut self) -> bool {
        let mut state = self.world.lock();
        let new: Vec<_> = state.history.iter().filter(|change| change.at > self.at).cloned().collect();
        for change in &new {
            self.at = change.at;
            if !is_in(self.shard.as_ref(), change.uid) {
                continue;
            }
            self.pending.extend(change.frame());
        }
        let ends_initial = self.initial && state.habits.initial_events == InitialEvents::Known && state.rng.bool();
        drop(state);
        if ends_initial || (self.initial && new.is_empty() && self.ends_initial_events()) {
            self.initial = false;
            self.bookmark(true);
        }
        !self.pending.is_empty()
    }

    fn ends_initial_events(&self) -> bool {
        self.world.lock().habits.initial_events == InitialEvents::Known
    }

    fn bookmark(&mut self, ends_initial_events: bool) {
        let state = self.world.lock();
        // All changes up to now are sent before the bookmark.
        let at = if self.initial || ends_initial_events { self.at } else { state.now.max(self.at) };
        // No bookmark is sent while newer changes are not in `pending`, or after a restore to an older version.
        if state.history.iter().any(|change| change.at > self.at) || state.now < self.at {
            return;
        }
        self.at = at;
        let mut metadata = len_field(6, state.version(at).as_bytes());
        if ends_initial_events {
            let entry = [len_field(1, b"k8s.io/initial-events-end"), len_field(2, b"true")].concat();
            metadata.extend(len_field(12, &entry));
        }
        self.pending.extend(event_frame("BOOKMARK", &body_of("v1", "ConfigMap", &len_field(1, &metadata))));
    }
}

fn ok(body: BoxStream<'static, Result<Bytes, TransportError>>) -> Response {
    Response::new(StatusCode::OK, HeaderMap::new(), body)
}

fn error(code: u16) -> Response {
    let body = Bytes::from(body_of("v1", "Status", &status(code)));
    let body = Box::pin(stream::iter([Ok(body)]));
    Response::new(StatusCode::from_u16(code).unwrap(), HeaderMap::new(), body)
}

fn too_large() -> Response {
    let cause = r#"{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#;
    let body = format!(r#"{{"kind":"Status","apiVersion":"v1","code":504,"details":{cause}}}"#);
    let mut response = error(504);
    response.body = Box::pin(stream::iter([Ok(body.into())]));
    response
}

fn object(name: &str, uid: u64, version: &str) -> Vec<u8> {
    body_of("v1", "ConfigMap", &config_map(name, &uid.to_string(), version))
}
