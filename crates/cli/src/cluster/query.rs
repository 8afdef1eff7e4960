//! Options that select what to list or watch, shared by several commands.

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use listwatch::client::{Client, List, ListParams, Resource, ResourceVersion, Selection};
use listwatch::{FieldSelector, LabelSelector, Shard};
use listwatch::{ItemError, ItemRef};

use crate::cluster::listing::list_resource;
use crate::cluster::resource::{self, find_resource};
use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::saved_body::ItemFilter;

#[derive(clap::Args)]
pub struct QueryArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    #[command(flatten)]
    pub version: VersionArgs,
}

#[derive(Clone, Default, clap::Args)]
pub struct VersionArgs {
    /// Resource version that the list must at least have [default: the most recent].
    ///
    /// 0 stands for the server's cache as it is.
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,

    /// How --resource-version applies [default: `NotOlderThan`]
    #[arg(long, value_enum, value_name = "MATCH", requires = "resource_version")]
    resource_version_match: Option<VersionMatch>,
}

#[derive(clap::Args)]
pub struct SelectionArgs {
    /// Resource type, as for `kubectl get`: pods, deploy, widgets.example.com
    #[arg(value_parser = ResourceValueParser, hide_possible_values = true)]
    resource: String,

    /// Namespace [default: the context's, else `default`]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// List objects in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Label selector: `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<LabelSelector>,

    /// Field selector: `spec.nodeName=node-1`
    #[arg(long, value_name = "FIELDS")]
    field_selector: Option<FieldSelector>,

    /// Request only the metadata of each object, which leaves half to two thirds of the bytes of a Pod
    #[arg(long)]
    pub metadata_only: bool,

    /// Shard I of N equal shards, from 0 (KEP-5866).
    ///
    /// Older servers send the objects of all shards. The command then drops the objects of other shards.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum VersionMatch {
    /// This version or a newer one
    #[value(name = "NotOlderThan")]
    NotOlderThan,
    /// This version
    #[value(name = "Exact")]
    Exact,
}

impl QueryArgs {
    /// Finds the resource, and returns its list, which sends nothing yet.
    pub async fn list<F, O, E>(
        self,
        client: &Client,
        selection: Selection,
        page_size: Option<u32>,
        default_namespace: String,
        decode: F,
    ) -> Result<List<F>, Failure>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let params = self.version.list_params(selection, page_size);
        let found = self.selection.find_resource(client, default_namespace).await?;
        Ok(list_resource(client, &found, &params, decode))
    }
}

/// Splits TYPE/NAME, as kubectl does, and returns the type and all names.
pub fn split_names(selection: &mut SelectionArgs, mut names: Vec<String>) -> Result<Vec<String>, Failure> {
    if let Some((resource, name)) = selection.resource.split_once('/') {
        names.insert(0, name.to_owned());
        selection.resource = resource.to_owned();
    }
    match names.iter().any(|name| name.is_empty() || name.contains('/')) {
        true => {
            Err(Failure::Usage("a name is empty or contains a slash: write RESOURCE NAME or RESOURCE/NAME".to_owned()))
        }
        false if !names.is_empty() && (selection.selector.is_some() || selection.field_selector.is_some()) => {
            Err(Failure::Usage("names cannot be used with a selector".to_owned()))
        }
        false => Ok(names),
    }
}

/// Returns the selector of the objects of this name, which works in all namespaces too.
pub fn name_selector(name: &str) -> FieldSelector {
    FieldSelector::new().equal("metadata.name", name)
}

/// The page size.
#[derive(clap::Args)]
pub struct PageArgs {
    /// Number of items in one response [default: all].
    ///
    /// For collections that take longer than the server's request timeout of 60 s.
    #[arg(long, value_name = "N", value_parser = number_in(1..=u32::MAX))]
    chunk_size: Option<u32>,
}

impl PageArgs {
    /// Returns the page size, and warns if the server ignores it at this version.
    pub fn page_size(&self, version: &VersionArgs) -> Option<u32> {
        let items = self.chunk_size?;
        if version.is_any() {
            notices::warn(&format!(
                "--chunk-size {items} is ignored with resource version 0: the server sends the whole collection"
            ));
        }
        Some(items)
    }
}

/// Takes any text; the names of built-in resources are for shell completion.
#[derive(Clone)]
pub struct ResourceValueParser;

impl TypedValueParser for ResourceValueParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        NonEmptyStringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(resource::common_names().map(PossibleValue::new)))
    }
}

impl VersionArgs {
    /// Returns true if the server may answer from its cache, however old that is.
    pub fn is_any(&self) -> bool {
        let version = self.resource_version();
        version == ResourceVersion::Any || version == ResourceVersion::AtLeast("0".to_owned())
    }

    /// Returns the parameters of a list.
    pub fn list_params(&self, selection: Selection, page_size: Option<u32>) -> ListParams {
        let params = ListParams::new(selection).resource_version(self.resource_version());
        match page_size {
            Some(items) => params.page_size(items),
            None => params,
        }
    }

    /// Returns true if the user gave a resource version.
    pub fn is_given(&self) -> bool {
        self.resource_version.is_some()
    }

    fn resource_version(&self) -> ResourceVersion {
        match (&self.resource_version, self.resource_version_match) {
            (None, _) => ResourceVersion::MostRecent,
            (Some(version), None) if version == "0" => ResourceVersion::Any,
            (Some(version), None | Some(VersionMatch::NotOlderThan)) => ResourceVersion::AtLeast(version.clone()),
            (Some(version), Some(VersionMatch::Exact)) => ResourceVersion::Exact(version.clone()),
        }
    }
}

impl SelectionArgs {
    /// Returns the resource as the user typed it.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the namespace; `None` for all.
    pub fn namespace(&self, default: String) -> Option<String> {
        (!self.all_namespaces).then(|| self.namespace.clone().unwrap_or(default))
    }

    /// Returns true if they select all objects.
    pub fn selects_all(&self) -> bool {
        self.selector.is_none() && self.field_selector.is_none() && self.shard.is_none()
    }

    /// Returns true if only the metadata of objects is requested.
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// Returns true if the user typed the name of a saved body in place of a resource.
    pub fn is_file(&self) -> bool {
        let path = Path::new(&self.resource);
        let is_body =
            path.extension().is_some_and(|extension| ["gz", "json", "pb"].map(AsRef::as_ref).contains(&extension));
        is_body && path.is_file()
    }

    /// Returns the filter of a saved body.
    pub fn item_filter(&self) -> ItemFilter {
        ItemFilter { namespace: self.namespace.clone(), labels: self.selector.clone().unwrap_or_default() }
    }

    /// Says which objects of a source these options select: `namespace web, labels app=shop`.
    pub fn describe(&self, default_namespace: Option<&str>) -> String {
        let namespace = self.namespace.as_deref().or(default_namespace).filter(|_| !self.all_namespaces);
        let mut parts = vec![namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"))];
        parts.extend(self.selector.as_ref().map(|labels| format!("labels {labels}")));
        parts.extend(self.field_selector.as_ref().map(|fields| format!("fields {fields}")));
        parts.extend(self.shard.map(|shard| format!("shard {shard}")));
        parts.join(", ")
    }

    /// Returns the selection of these options.
    pub fn selection(&self) -> Selection {
        let mut selection = Selection::all();
        if let Some(selector) = &self.selector {
            selection = selection.labels(selector.clone());
        }
        if let Some(selector) = &self.field_selector {
            selection = selection.fields(selector.clone());
        }
        if self.metadata_only {
            selection = selection.metadata_only();
        }
        if let Some(shard) = self.shard {
            selection = selection.shard(shard);
        }
        selection
    }

    /// Finds the resource, and returns it with the namespace; `None` selects all namespaces. Like kubectl, it ignores a
    /// namespace if the resource has none.
    pub async fn find_resource(
        self,
        client: &Client,
        default_namespace: String,
    ) -> Result<(Resource, Option<String>), Failure> {
        let resource = find_resource(client, &self.resource).await?;
        let is_one = !self.all_namespaces && resource.is_namespaced();
        Ok((resource, is_one.then(|| self.namespace.unwrap_or(default_namespace))))
    }
}
