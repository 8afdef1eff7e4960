//! What of a resource to list or watch: the options that commands share.

use listwatch::client::{
    Client, Error, ErrorKind, List, ListParams, ListSummary, Progress, Resource, ResourceVersion, Selection as Selected,
};
use listwatch::object::{FieldSelector, LabelSelector, Shard};
use listwatch::{ItemError, ItemRef};

use crate::cluster::resource;
use crate::failure::Failure;
use crate::notices;
use crate::rows::Reached;

#[derive(clap::Args)]
pub struct Query {
    #[command(flatten)]
    pub selection: Selection,

    #[command(flatten)]
    pub version: Version,
}

#[derive(clap::Args)]
pub struct Version {
    /// How new the list must be: 0 for whatever the server has cached, or at least a version
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,

    /// What --resource-version means
    #[arg(long, value_enum, value_name = "MATCH", requires = "resource_version")]
    resource_version_match: Option<VersionMatch>,
}

#[derive(clap::Args)]
pub struct Selection {
    /// Of what, as kubectl takes it: pods, po, deployments.apps, widgets.v1.example.com
    resource: String,

    /// The namespace [default: that of the context, else `default`]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only objects with these labels, as in `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<LabelSelector>,

    /// Only objects with these fields, as in `spec.nodeName=node-1`
    #[arg(long, value_name = "FIELDS")]
    field_selector: Option<FieldSelector>,

    /// Only the metadata of each object
    #[arg(long)]
    pub metadata_only: bool,

    /// One of N equal parts, I from 0 (KEP-5866); what a server sends beyond it is left out here
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

impl Query {
    /// The list, of which nothing is sent yet but what it takes to find the resource. Warns of a page size that the server
    /// ignores.
    pub async fn list<F, O, E>(
        self,
        client: &Client,
        selected: Selected,
        page: Option<u32>,
        default_namespace: String,
        decode: F,
    ) -> Result<List<F>, Failure>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let version = self.version.asked();
        if let Some(items) = page
            && (version == ResourceVersion::Any || version == ResourceVersion::AtLeast("0".to_owned()))
        {
            notices::warn(&format!(
                "limit {items} is ignored with resource version 0: the server sends the whole collection"
            ));
        }
        let mut params = ListParams::new(selected).resource_version(version);
        if let Some(items) = page {
            params = params.page_size(items);
        }
        let (resource, namespace) = self.selection.find(client, default_namespace).await?;
        let list = client.list_with(&resource, &params, decode);
        Ok(match namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        })
    }
}

/// The error of a list: what was never sent is wrong usage.
pub fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Params(error) => Failure::Usage(error.to_string()),
        _ => Failure::Error(error.to_string()),
    }
}

impl Version {
    fn asked(&self) -> ResourceVersion {
        match (&self.resource_version, self.resource_version_match) {
            (None, _) => ResourceVersion::MostRecent,
            (Some(version), None) if version == "0" => ResourceVersion::Any,
            (Some(version), None | Some(VersionMatch::NotOlderThan)) => ResourceVersion::AtLeast(version.clone()),
            (Some(version), Some(VersionMatch::Exact)) => ResourceVersion::Exact(version.clone()),
        }
    }
}

impl Selection {
    pub fn selected(&self) -> Selected {
        let mut selected = Selected::all();
        if let Some(selector) = &self.selector {
            selected = selected.labels(selector.clone());
        }
        if let Some(selector) = &self.field_selector {
            selected = selected.fields(selector.clone());
        }
        if self.metadata_only {
            selected = selected.metadata_only();
        }
        if let Some(shard) = self.shard {
            selected = selected.shard(shard);
        }
        selected
    }

    /// The resource, and the namespace if it is only one. As with kubectl, a namespace is no fault where there are none.
    pub async fn find(self, client: &Client, default_namespace: String) -> Result<(Resource, Option<String>), Failure> {
        let resource = resource::find(client, &self.resource).await?;
        let is_one = !self.all_namespaces && resource.is_namespaced();
        Ok((resource, is_one.then(|| self.namespace.unwrap_or(default_namespace))))
    }
}

/// How far a list is.
pub fn reached(progress: &Progress) -> Reached {
    Reached {
        bytes: progress.bytes(),
        items: progress.items(),
        expected_bytes: progress.expected_bytes(),
        expected_items: progress.expected_items(),
    }
}

/// Warns of what a complete list reports.
pub fn warn(summary: &ListSummary) {
    if summary.other_shards > 0 {
        notices::warn(&format!(
            "the server does not know shards: {} items of others came too and were left out here",
            summary.other_shards
        ));
    }
    for warning in &summary.warnings {
        notices::warn(warning);
    }
}
