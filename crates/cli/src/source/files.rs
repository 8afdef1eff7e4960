//! Files, folders and archives as a source: what kubectl wrote, recorded bodies, and the dumps of a cluster.
//!
//! Files are found by their contents. Each read of a resource goes through all files again, so that memory does not
//! grow with them; a thread reads, and waits while its reader is slow.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use listwatch::TypeMeta;
use listwatch::client::Resource;

use super::definitions::resources_of;
use super::documents::{Contents, Peeked, Visit};
use super::objects::{Cursor, ListedResource, Object, ObjectSource, group_of};
use crate::notices;

/// The objects that a thread reads ahead.
const AHEAD: usize = 16;
/// The faults that are named one by one.
const MAX_NAMED: usize = 20;

pub struct FileSource(Arc<Files>);

struct Files {
    /// Each file, with its name in messages.
    paths: Vec<PathBuf>,
    /// A copy of stdin, which is deleted with the source.
    _copy: Option<tempfile::NamedTempFile>,
    /// True if an object may occur in several files.
    may_repeat: bool,
    /// The files whose faults were named.
    named: Mutex<HashSet<String>>,
    /// The kinds of all objects, once they were read.
    kinds: Mutex<Option<Kinds>>,
}

/// The kinds of the objects, and whether objects have a namespace.
type Kinds = BTreeMap<(String, String), bool>;

impl FileSource {
    /// Opens a file, a folder, or stdin, which is copied to a temporary file first.
    pub fn open(path: &Path) -> Result<Self, String> {
        let copy = if path == Path::new("-") { Some(copy_stdin().map_err(|error| error.to_string())?) } else { None };
        let mut paths = Vec::new();
        let is_folder = path.is_dir();
        match &copy {
            Some(copy) => paths.push(copy.path().to_owned()),
            None if is_folder => find_files(path, &mut paths).map_err(|error| error.to_string())?,
            None => paths.push(path.to_owned()),
        }
        let is_archive = !is_folder && paths.iter().any(|path| is_tar(path).unwrap_or(false));
        let may_repeat = is_folder || is_archive;
        Ok(Self(Arc::new(Files { paths, _copy: copy, may_repeat, named: Mutex::default(), kinds: Mutex::default() })))
    }
}

fn copy_stdin() -> io::Result<tempfile::NamedTempFile> {
    let persistent = Path::new("/var/tmp");
    let is_unset = std::env::var_os("TMPDIR").is_none();
    let mut copy = if is_unset && persistent.is_dir() {
        tempfile::NamedTempFile::new_in(persistent)?
    } else {
        tempfile::NamedTempFile::new()?
    };
    io::copy(&mut io::stdin().lock(), &mut copy)?;
    Ok(copy)
}

fn is_tar(path: &Path) -> io::Result<bool> {
    Ok(Peeked::open(File::open(path)?)?.is_tar())
}

/// Finds the files of a folder, in the order of their names. Links are not followed.
fn find_files(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            find_files(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

impl Files {
    /// Calls `visit` with each object of all files. Returns the faults of files that could not be read whole.
    fn visit(&self, visit: &mut Visit<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        let has_ended = Cell::new(false);
        let mut visit = |object| {
            let flow = visit(object);
            has_ended.set(has_ended.get() || flow.is_break());
            flow
        };
        for path in &self.paths {
            let opened = File::open(path).and_then(Peeked::open);
            let read = match opened {
                Ok(peeked) if peeked.is_tar() => visit_archive(peeked, &mut visit, &mut faults),
                Ok(peeked) => match peeked.visit_objects(&mut visit) {
                    // A file that was named has objects, or it was a mistake.
                    Ok(Contents::Other) if !self.may_repeat => {
                        Err("it has no objects of Kubernetes in JSON, YAML or protobuf".to_owned())
                    }
                    read => read.map(drop),
                },
                Err(error) => Err(error.to_string()),
            };
            // The reader of the source names its file.
            let named = |error: String| match self.paths.len() {
                1 => error,
                _ => format!("{}: {error}", path.to_string_lossy()),
            };
            faults.extend(read.err().map(named));
            if has_ended.get() {
                break;
            }
        }
        faults
    }

    /// Names faults, each once, and returns the error of the read.
    fn report(&self, faults: Vec<String>) -> Result<(), String> {
        let Some(first) = faults.first().cloned() else { return Ok(()) };
        if faults.len() == 1 {
            return Err(first);
        }
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let count = faults.len();
        for fault in faults {
            if named.len() < MAX_NAMED && named.insert(fault.clone()) {
                notices::warn(&fault);
            }
        }
        Err(format!("{count} files could not be read whole"))
    }

    /// Returns the kinds of all objects, which it reads once.
    fn kinds(&self) -> Kinds {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kinds) = &*kinds {
            return kinds.clone();
        }
        let mut found = Kinds::new();
        self.visit(&mut |object| {
            let TypeMeta { api_version, kind, .. } = &object.type_meta;
            let has_namespace = object.item().meta().is_ok_and(|meta| !meta.namespace().is_empty());
            *found.entry((api_version.clone(), kind.clone())).or_default() |= has_namespace;
            ControlFlow::Continue(())
        });
        kinds.insert(found).clone()
    }
}

/// Reads the files in an archive. Faults of one are named, and the next one is read.
fn visit_archive(peeked: Peeked<'_>, visit: &mut Visit<'_>, faults: &mut Vec<String>) -> Result<(), String> {
    let mut archive_reader = tar::Archive::new(peeked.into_reader());
    let entries = archive_reader.entries().map_err(|error| error.to_string())?;
    let mut has_ended = false;
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let read = Peeked::open(entry).map_err(|error| error.to_string()).and_then(|peeked| {
            peeked.visit_objects(&mut |object| {
                let flow = visit(object);
                has_ended |= flow.is_break();
                flow
            })
        });
        faults.extend(read.err().map(|error| format!("{name}: {error}")));
        if has_ended {
            break;
        }
    }
    Ok(())
}

impl ObjectSource for FileSource {
    fn version(&self) -> String {
        "1".to_owned()
    }

    fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        _name: Option<&str>,
    ) -> Result<Box<dyn Cursor>, String> {
        let (sender, receiver) = sync_channel(AHEAD);
        let files = Arc::clone(&self.0);
        let (group, kind) = (resource.group().to_owned(), resource.kind().to_owned());
        let namespace = namespace.map(str::to_owned);
        thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || {
                let mut seen = HashSet::new();
                let faults = files.visit(&mut |object| {
                    if !is_of(&object, &group, &kind, namespace.as_deref())
                        || files.may_repeat && !seen.insert(key_hash(&object))
                    {
                        return ControlFlow::Continue(());
                    }
                    // The receiver has left if nobody wants more.
                    if sender.send(Ok(object)).is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                if let Err(error) = files.report(faults) {
                    _ = sender.send(Err(error));
                }
            })
            .map_err(|error| error.to_string())?;
        Ok(Box::new(FileCursor(receiver)))
    }

    fn custom_resources(&self) -> Result<Vec<ListedResource>, String> {
        let mut resources = Vec::new();
        self.0.visit(&mut |object| {
            let TypeMeta { api_version, kind, .. } = &object.type_meta;
            if kind == "CustomResourceDefinition" && group_of(api_version) == "apiextensions.k8s.io" {
                resources.extend(object.json().map(|json| resources_of(&json)).unwrap_or_default());
            }
            ControlFlow::Continue(())
        });
        // Kinds without a definition: their plural is guessed as kubectl does.
        let built_in = super::builtin::built_in();
        for ((api_version, kind), has_namespace) in self.0.kinds() {
            let group = group_of(&api_version).to_owned();
            let is_known = |listed: &ListedResource| listed.resource.group() == group && listed.resource.kind() == kind;
            if built_in.iter().chain(&resources).any(is_known) {
                continue;
            }
            let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
            let singular = kind.to_lowercase();
            let resource = Resource::new(group, version, guess_plural(&singular), kind);
            let resource = if has_namespace { resource } else { resource.cluster_scoped() };
            resources.push(ListedResource {
                resource,
                singular,
                short_names: Vec::new(),
                categories: Vec::new(),
                definition: None,
            });
        }
        Ok(resources)
    }

    fn found(&self) -> Result<Vec<String>, String> {
        let kinds = self.0.kinds().into_keys();
        let name = |(api_version, kind): (String, String)| {
            let plural = guess_plural(&kind.to_lowercase());
            match group_of(&api_version) {
                "" => plural,
                group => format!("{plural}.{group}"),
            }
        };
        let mut names: Vec<_> = kinds.map(name).collect();
        names.dedup();
        Ok(names)
    }
}

/// `UnsafeGuessKindToResource` of apimachinery.
fn guess_plural(singular: &str) -> String {
    if singular == "endpoints" {
        return singular.to_owned();
    }
    match singular.strip_suffix('y') {
        _ if singular.ends_with('s') => format!("{singular}es"),
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    }
}

fn is_of(object: &Object, group: &str, kind: &str, namespace: Option<&str>) -> bool {
    let own = group_of(&object.type_meta.api_version);
    // Events have two groups.
    let has_group =
        own == group || kind == "Event" && [own, group].iter().all(|group| ["", "events.k8s.io"].contains(group));
    let has_namespace =
        || namespace.is_none_or(|namespace| object.item().meta().is_ok_and(|meta| meta.namespace() == namespace));
    object.type_meta.kind == kind && has_group && has_namespace()
}

fn key_hash(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Ok(meta) = object.item().meta() {
        (&*meta.namespace(), &*meta.name()).hash(&mut hasher);
    }
    hasher.finish()
}

struct FileCursor(Receiver<Result<Object, String>>);

impl Cursor for FileCursor {
    fn next(&mut self) -> Result<Option<Object>, String> {
        self.0.recv().ok().transpose()
    }
}
