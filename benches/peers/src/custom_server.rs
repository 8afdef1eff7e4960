//! Serves custom resources in JSON over plain HTTP/1.1: a list, its pages, or a watch with initial events and changes.
//!
//! The server runs in the process of the runner, which makes the objects once for all ways. It has a thread for each
//! connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use listwatch_corpus::custom::{CustomKind, CustomResource, LIST_VERSION};
use listwatch_peers::add_key;
use listwatch_peers::chunks::Chunks;
use listwatch_peers::follower::CHANGED_AT;

pub struct CustomServer {
    shared: Arc<Shared>,
    pub url: String,
}

struct Shared {
    kind: CustomKind,
    objects: Vec<CustomResource>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of objects that are served.
    count: usize,
    /// Grows when the changes are discarded; watches then end.
    epoch: u64,
    /// The changes in order: the index of the changed object, and the time. Each change raises the version by one.
    changes: Vec<(usize, u128)>,
    /// The last change of each object, plus one; 0 for none.
    last: Vec<usize>,
}

impl CustomServer {
    pub fn start(kind: CustomKind, objects: Vec<CustomResource>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared { kind, objects, state: Mutex::default(), changed: Condvar::new() });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&served);
                // A client that is killed breaks its connection.
                thread::spawn(move || _ = shared.serve(stream));
            }
        });
        Ok(Self { shared, url })
    }

    /// Serves the first `count` objects, as they were before all changes.
    pub fn reset(&self, count: usize) {
        let mut state = self.shared.state();
        *state = State { count, epoch: state.epoch + 1, changes: Vec::new(), last: vec![0; count] };
        self.shared.changed.notify_all();
    }

    /// Returns the number of objects and the sum of their hashes.
    pub fn list(&self) -> (u64, u64) {
        let (state, mut hash) = (self.shared.state(), 0);
        for (index, last) in state.last.iter().enumerate() {
            let object = &self.shared.objects[index];
            let version = if *last > 0 { LIST_VERSION + *last as u64 } else { object.resource_version };
            add_key(&mut hash, &object.namespace, &object.name, &version.to_string());
        }
        (state.last.len() as u64, hash)
    }

    /// Changes random objects at this rate, and returns the number of changes.
    pub fn change(&self, rate: u32, seconds: u32) -> u64 {
        let (mut rng, start) = (Rng::with_seed(1), Instant::now());
        let total = rate * seconds;
        for number in 0..total {
            let due = Duration::from_secs(1) * number / rate;
            thread::sleep(due.saturating_sub(start.elapsed()));
            let mut state = self.shared.state();
            let index = rng.usize(..state.count);
            state.changes.push((index, now()));
            state.last[index] = state.changes.len();
            drop(state);
            self.shared.changed.notify_all();
        }
        total.into()
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut requests, mut out) = (BufReader::new(stream.try_clone()?), stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if requests.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let target = head.split(' ').nth(1).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let query: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
            let get = |name: &str| query.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
            let [group, version, plural, _] = self.kind.resource();
            if path != format!("/apis/{group}/{version}/{plural}") {
                out.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            }
            out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let mut body = Chunks::new(&mut out);
            let is_set = |name| matches!(get(name), Some("true" | "1"));
            let number = |name| get(name).and_then(|value| value.parse::<usize>().ok());
            if is_set("watch") {
                return self.watch(is_set("sendInitialEvents"), number("resourceVersion"), &mut body);
            }
            let start = number("continue").unwrap_or(0);
            // Version 0 ignores the page size, as the watch cache of a real API server does.
            let limit = number("limit").filter(|limit| *limit > 0 && get("resourceVersion") != Some("0"));
            self.list(start, limit, &mut body)?;
            body.finish()?;
        }
    }

    fn list(&self, start: usize, limit: Option<usize>, body: &mut Chunks<'_>) -> io::Result<()> {
        let (count, changes, last) = {
            let state = self.state();
            (state.count, state.changes.clone(), state.last.clone())
        };
        let Range { start, end } = start.min(count)..limit.map_or(count, |limit| (start + limit).min(count));
        let token = (end < count).then(|| end.to_string());
        let [head, tail] = self.kind.list_envelope(LIST_VERSION + changes.len() as u64, token.as_deref());
        body.write(head.as_bytes())?;
        for index in start..end {
            if index > start {
                body.write(b",")?;
            }
            self.object(index, last[index], &changes, body)?;
        }
        body.write(tail.as_bytes())
    }

    /// Writes an object as of its last change, if it has any.
    fn object(&self, index: usize, last: usize, changes: &[(usize, u128)], body: &mut Chunks<'_>) -> io::Result<()> {
        let object = &self.objects[index];
        if last == 0 {
            return body.write(object.json.as_bytes());
        }
        body.write(changed(object, LIST_VERSION + last as u64, changes[last - 1].1).as_bytes())
    }

    fn watch(&self, with_initial: bool, from: Option<usize>, body: &mut Chunks<'_>) -> io::Result<()> {
        let (count, epoch, changes, last) = {
            let state = self.state();
            (state.count, state.epoch, state.changes.clone(), state.last.clone())
        };
        let mut sent = if with_initial {
            for index in 0..count {
                body.write(br#"{"type":"ADDED","object":"#)?;
                self.object(index, last[index], &changes, body)?;
                body.write(b"}\n")?;
            }
            let [.., kind] = self.kind.resource();
            let (api_version, version) = (self.kind.api_version(), LIST_VERSION + changes.len() as u64);
            let bookmark = format!(
                r#"{{"type":"BOOKMARK","object":{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"annotations":{{"k8s.io/initial-events-end":"true"}},"creationTimestamp":null,"resourceVersion":"{version}"}}}}}}"#
            );
            body.write(bookmark.as_bytes())?;
            body.write(b"\n")?;
            changes.len()
        } else {
            let from = from.and_then(|version| version.checked_sub(usize::try_from(LIST_VERSION).ok()?));
            from.unwrap_or(changes.len())
        };
        body.flush()?;
        let mut state = self.state();
        loop {
            while state.epoch == epoch && state.changes.len() <= sent {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.epoch != epoch {
                return Ok(());
            }
            let (index, at) = state.changes[sent];
            drop(state);
            sent += 1;
            let object = changed(&self.objects[index], LIST_VERSION + sent as u64, at);
            body.write(format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n").as_bytes())?;
            body.flush()?;
            state = self.state();
        }
    }
}

/// Returns the object with another version, and with the time of its change as an annotation.
fn changed(object: &CustomResource, version: u64, at: u128) -> String {
    let old = format!(r#""resourceVersion":"{}""#, object.resource_version);
    let json = object.json.replacen(&old, &format!(r#""resourceVersion":"{version}""#), 1);
    let (annotations, metadata) = (r#""metadata":{"annotations":{"#, r#""metadata":{"#);
    if json.contains(annotations) {
        json.replacen(annotations, &format!(r#"{annotations}"{CHANGED_AT}":"{at}","#), 1)
    } else {
        json.replacen(metadata, &format!(r#"{annotations}"{CHANGED_AT}":"{at}"}},"#), 1)
    }
}
