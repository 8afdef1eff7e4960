//! `-f`: the objects that manifests name, which are read from the server.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use listwatch::client::Resource;
use listwatch::internal::chain;

use super::source::{Found, Source};
use crate::failure::Failure;
use crate::source::visit_manifests;

/// The files that kubectl reads of a folder.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// An object that a manifest names.
struct Manifest {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// What manifests name, and why some of it is left out.
pub struct FromManifests {
    pub targets: Vec<Found>,
    pub faults: Vec<String>,
    /// True if one object is printed as itself, and not in a list.
    pub is_one: bool,
}

/// Finds the objects that the manifests in these files, folders or stdin (`-`) name. An object without a namespace is
/// in `namespace`, and `explicit` is the namespace of `-n`.
pub async fn find_manifests(
    source: &Source,
    files: &[String],
    is_recursive: bool,
    namespace: &str,
    explicit: Option<&str>,
) -> Result<FromManifests, Failure> {
    let mut manifests = Vec::new();
    for file in files {
        read_manifests(file, is_recursive, &mut manifests).map_err(Failure::Error)?;
    }
    let (mut targets, mut faults) = (Vec::new(), Vec::new());
    for Manifest { api_version, kind, namespace: own, name } in manifests {
        let resource = find_kind(source, &api_version, &kind).await?;
        if name.is_empty() {
            return Err(Failure::Error(format!("a manifest of kind {kind} has no name")));
        }
        if let Some(wanted) = explicit.filter(|wanted| resource.is_namespaced() && !own.is_empty() && **wanted != own) {
            faults.push(format!("{kind} {name} is of namespace {own}, and not of {wanted}: use -n {own}"));
            continue;
        }
        let own = if own.is_empty() { namespace.to_owned() } else { own };
        let namespace = resource.is_namespaced().then_some(own);
        targets.push(Found { resource, namespace, name: Some(name) });
    }
    let is_file = !is_recursive && files.iter().any(|file| file != "-");
    Ok(FromManifests { is_one: is_file && targets.len() == 1, targets, faults })
}

async fn find_kind(source: &Source, api_version: &str, kind: &str) -> Result<Resource, Failure> {
    let is_it = |resource: &&Resource| resource.kind() == kind && resource.api_version() == api_version;
    match Resource::BUILT_IN.iter().find(is_it) {
        Some(resource) => Ok(resource.clone()),
        None => source.find(&format!("{api_version}/{kind}")).await,
    }
}

fn read_manifests(file: &str, is_recursive: bool, manifests: &mut Vec<Manifest>) -> Result<(), String> {
    if file.starts_with("http://") || file.starts_with("https://") {
        return Err(format!("{file}: an address is not read: use `curl URL | listwatch get -f -`"));
    }
    if file == "-" {
        return read_manifest("stdin", io::stdin().lock(), manifests);
    }
    let mut paths = Vec::new();
    find_files(Path::new(file), true, is_recursive, &mut paths).map_err(|error| cannot_read(file, &error))?;
    for path in paths {
        let name = path.to_string_lossy();
        let opened = File::open(&path).map_err(|error| cannot_read(&name, &error))?;
        read_manifest(&name, opened, manifests)?;
    }
    Ok(())
}

fn cannot_read(name: &str, error: &io::Error) -> String {
    format!("cannot read {name}: {}", chain(error))
}

/// Finds the files of a folder in the order of their names, and below it if `is_recursive`. A path that was given is
/// read whatever its extension.
fn find_files(path: &Path, is_given: bool, is_recursive: bool, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        if is_given || is_recursive {
            let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                // As in kubectl, a link to a folder is not followed.
                if !(entry.file_type()?.is_symlink() && entry.path().is_dir()) {
                    find_files(&entry.path(), false, is_recursive, paths)?;
                }
            }
        }
        return Ok(());
    }
    let extension = path.extension().unwrap_or_default();
    if is_given || EXTENSIONS.iter().any(|known| extension == *known) {
        paths.push(path.to_owned());
    }
    Ok(())
}

fn read_manifest(name: &str, reader: impl Read, manifests: &mut Vec<Manifest>) -> Result<(), String> {
    let mut result = Ok(());
    let read = visit_manifests(reader, &mut |item| match item.meta() {
        Ok(meta) => manifests.push(Manifest {
            api_version: item.type_meta().api_version.clone(),
            kind: item.type_meta().kind.clone(),
            namespace: meta.namespace().into_owned(),
            name: meta.name().into_owned(),
        }),
        Err(error) => result = Err(error.to_string()),
    });
    read.and(result).map_err(|error| format!("{name}: {error}"))
}
