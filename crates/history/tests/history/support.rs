//! A small cluster whose every state is known, and its recorder.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use listwatch::Encoding;
use listwatch::client::Resource;
use listwatch_cache::{CacheWriter, ChangeLogLimits};
use listwatch_history::{History, PastCollection, Point, Recorder, WriterOptions};

/// The objects of a collection: their bytes by key.
pub type Objects = BTreeMap<String, String>;

pub const RESOURCE: Resource = Resource::CONFIG_MAPS;

/// A collection that changes at random, with all of its states.
pub struct Cluster {
    pub writer: CacheWriter<[u8]>,
    pub objects: Objects,
    /// The state at each version.
    pub states: BTreeMap<u64, Objects>,
    pub version: u64,
    pub random: fastrand::Rng,
    uids: u64,
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        let writer = CacheWriter::new(&RESOURCE).change_log(ChangeLogLimits::default());
        let states = BTreeMap::from([(1, Objects::new())]);
        let random = fastrand::Rng::with_seed(seed);
        Self { writer, objects: Objects::new(), states, version: 1, random, uids: 0 }
    }

    /// Adds, changes or deletes an object.
    pub fn change(&mut self) {
        let (namespace, name) = (["a", "a-b", "b"][self.random.usize(..3)], format!("web-{}", self.random.u8(..12)));
        self.change_object(namespace, &name);
    }

    pub fn change_object(&mut self, namespace: &str, name: &str) {
        self.version += 1 + self.random.u64(..3);
        let key = format!("{namespace}/{name}");
        let known = self.objects.get(&key).cloned();
        let state = known.as_ref().map(|known| serde_json::from_str::<serde_json::Value>(known).unwrap());
        let version = self.version.to_string();
        match state {
            Some(mut state) if self.random.u8(..5) == 0 => {
                state["metadata"]["resourceVersion"] = version.into();
                self.writer.apply_deletion(Encoding::Json, state.to_string().as_bytes()).unwrap();
                self.objects.remove(&key);
            }
            state => {
                self.uids += u64::from(state.is_none());
                let uid = format!("00000000-0000-0000-0000-{:012}", self.uids);
                let uid = state.as_ref().map_or(uid, |state| state["metadata"]["uid"].as_str().unwrap().to_owned());
                let data: String = (0..self.random.usize(1..200)).map(|_| self.random.alphanumeric()).collect();
                let text = format!(
                    r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}},"data":{{"fixed":"{}","text":"{data}"}}}}"#,
                    "something that stays ".repeat(8),
                );
                self.writer.apply(Encoding::Json, text.as_bytes()).unwrap();
                self.objects.insert(key, text);
            }
        }
        self.states.insert(self.version, self.objects.clone());
    }

    pub fn bookmark(&mut self) {
        self.version += 5;
        self.writer.bookmark(&self.version.to_string());
        self.states.insert(self.version, self.objects.clone());
    }

    /// Returns the state at a version.
    pub fn at(&self, version: u64) -> &Objects {
        self.states.range(..=version).next_back().unwrap().1
    }
}

/// Small periods and parts, so that a test has many.
pub fn small() -> WriterOptions {
    let mut options = WriterOptions::default();
    (options.period_changes, options.part_changes) = (20, 90);
    options
}

pub fn time(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_800_000_000 + seconds)
}

pub fn recorder(dir: &Path, cluster: &Cluster, options: WriterOptions) -> Recorder {
    let mut recorder = Recorder::open(dir, options).unwrap();
    recorder.attach(cluster.writer.cache());
    recorder
}

/// Returns the objects of a past collection, and checks that each is found by its key and in its namespace.
pub fn objects(past: &PastCollection) -> Objects {
    let mut objects = Objects::new();
    let mut last = None;
    for object in past {
        let object = object.unwrap();
        let key = format!("{}/{}", object.namespace(), object.name());
        assert!(last.replace(key.clone()).is_none_or(|last| last < key), "keys ascend");
        let found = past.get((object.namespace(), object.name())).unwrap().unwrap();
        assert_eq!(found.bytes(), object.bytes());
        objects.insert(key, String::from_utf8(object.bytes().to_vec()).unwrap());
    }
    for namespace in ["a", "a-b", "b", "none"] {
        let of_namespace = objects.keys().filter(|key| key.split_once('/').unwrap().0 == namespace).count();
        assert_eq!(past.namespace(namespace).count(), of_namespace);
    }
    objects
}

pub fn at_version(history: &History, version: u64) -> Objects {
    let past = history.at(&RESOURCE, &Point::Version(version.to_string())).unwrap();
    assert_eq!(past.resource_version(), version.to_string());
    objects(&past)
}
