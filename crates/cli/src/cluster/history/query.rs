//! The arguments that choose a folder, a time and the objects that a command reads.

use std::path::{Path, PathBuf};

use listwatch::client::Resource;
use listwatch_cache::ObjectKey;
use listwatch_history::{History, HistoryError};

use crate::cluster::query::ResourceValueParser;
use crate::cluster::resource::find_common;
use crate::failure::Failure;

pub fn open(dir: &Path) -> Result<History, Failure> {
    History::open(dir).map_err(|error| failure(&error))
}

pub fn failure(error: &HistoryError) -> Failure {
    Failure::Error(error.to_string())
}

/// Which objects of a history are wanted.
#[derive(clap::Args)]
pub struct HistoryQuery {
    /// TYPE or TYPE/NAME: pods, deploy/shop, widgets.example.com
    #[arg(value_name = "RESOURCE", value_parser = ResourceValueParser, hide_possible_values = true)]
    resource: String,

    /// Name of the object [default: all objects]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Namespace [default: `default`]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// Objects in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Folder of the history
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,

    /// Print values of Secrets
    #[arg(long)]
    pub show_secrets: bool,
}

/// The resource and the objects of a query.
pub struct Selected {
    pub resource: Resource,
    pub namespace: Option<String>,
    pub key: Option<ObjectKey>,
}

impl HistoryQuery {
    pub fn select(&self, history: &History) -> Result<Selected, Failure> {
        let (typed, in_type) = match self.resource.split_once('/') {
            Some((typed, name)) => (typed, Some(name)),
            None => (&*self.resource, None),
        };
        let name = match (in_type, &self.name) {
            (Some(_), Some(_)) => return Err(Failure::Usage("write TYPE NAME or TYPE/NAME, not both".to_owned())),
            (Some(name), None) => Some(name.to_owned()),
            (None, name) => name.clone(),
        };
        let resource = find_recorded(history, typed)?;
        let is_all = self.all_namespaces || !resource.is_namespaced();
        let namespace = (!is_all).then(|| self.namespace.clone().unwrap_or_else(|| "default".to_owned()));
        if name.is_some() && resource.is_namespaced() && namespace.is_none() {
            return Err(Failure::Usage("a name is of one namespace: use -n in place of -A".to_owned()));
        }
        let key = name.map(|name| ObjectKey { namespace: namespace.clone().unwrap_or_default(), name });
        Ok(Selected { resource, namespace, key })
    }
}

/// Finds a recorded resource by the name that the user typed.
pub fn find_recorded(history: &History, typed: &str) -> Result<Resource, Failure> {
    if let Some(resource) = find_common(typed) {
        return Ok(resource.clone());
    }
    let recorded = history.resources().map_err(|error| failure(&error))?;
    let (name, group) = typed.split_once('.').map_or((typed, None), |(name, group)| (name, Some(group)));
    let found = recorded.iter().find(|resource| {
        let is_name = [resource.plural(), resource.kind()].iter().any(|own| own.eq_ignore_ascii_case(name));
        is_name && group.is_none_or(|group| group == resource.group())
    });
    let names = || recorded.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    found.cloned().ok_or_else(|| Failure::Error(format!("the history has no {typed:?}: it has {}", names())))
}
