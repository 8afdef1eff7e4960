//! Resolves a typed name to a resource, by the rules of kubectl.

use super::resource::{Resource, typed_name};
use crate::error::InvalidInput;

/// A resource of a server's discovery documents.
///
/// A slice of these is in the server's order of preference, as in aggregated discovery: the core group first, then the other
/// groups, and in each group the preferred version first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DiscoveredResource {
    /// The API group, `""` for core.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The `name` in the document. A name with a `/` is a subresource, which [`resolve`] never finds.
    pub plural: String,
    /// The `singularName`. If it is empty, [`resolve`] uses the kind in lower case, as kubectl does.
    pub singular: String,
    /// The kind of one object.
    pub kind: String,
    /// Short names, like `po` for pods.
    pub short_names: Vec<String>,
    /// True if objects are in namespaces.
    pub namespaced: bool,
    /// The verbs that the server supports, like `list`.
    pub verbs: Vec<String>,
}

/// A resource without verbs and short names.
impl From<&Resource> for DiscoveredResource {
    fn from(resource: &Resource) -> Self {
        Self {
            group: resource.group().to_owned(),
            version: resource.version().to_owned(),
            plural: resource.plural().to_owned(),
            kind: resource.kind().to_owned(),
            namespaced: resource.is_namespaced(),
            ..Self::default()
        }
    }
}

/// Finds the resource for a typed name, as `kubectl get` does.
///
/// `typed` is a plural, a singular, a short name or a kind, alone or followed by `.group` or `.version.group`; a version of the
/// core group ends in a dot, `pods.v1.`. Case is ignored. Plurals and singulars precede short names, and both precede kinds. A
/// whole group precedes the beginning of a group (`deployments.ap`). Of several groups and versions the first in `discovered` wins.
///
/// It follows the rules of cli-runtime `Builder.mappingFor` and client-go's restmapper, with three differences: resources
/// without `list` are ignored, a short name keeps the version that was typed with it (kubectl drops it), and kubectl accepts
/// short names only in lower case and kinds outside the core group only with their group.
///
/// # Errors
///
/// [`InvalidInput`] if the server has no resource of that name or does not list it, or if two resources of one group and version
/// have the same name.
pub fn resolve(typed: &str, discovered: &[DiscoveredResource]) -> Result<Resource, InvalidInput> {
    let listable = || {
        let all = discovered.iter();
        all.filter(|r| r.verbs.iter().any(|verb| verb == "list"))
    };
    if let Some(found) = find(typed, &listable())? {
        let DiscoveredResource { group, version, plural, kind, namespaced, .. } = found.clone();
        let resource = Resource::new(group, version, plural, kind);
        return Ok(if namespaced { resource } else { resource.cluster_scoped() });
    }
    if let Some(found) = find(typed, &discovered.iter())? {
        let name = found.typed_name();
        return Err(InvalidInput::new(format!("{typed:?} is {name}, which the server does not list"), typed));
    }
    let near = did_you_mean(&near(typed, listable()));
    Err(InvalidInput::new(format!("no resource {typed:?} on this server{near}"), typed))
}

/// One way to read a typed name; `group` and `version` are `None` if any matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceName<'a> {
    /// A plural, singular or short name, or a kind.
    name: &'a str,
    /// The version, in the reading `name.version.group`.
    version: Option<&'a str>,
    /// The group, or its beginning.
    group: Option<&'a str>,
}

impl<'a> ResourceName<'a> {
    /// Returns the one or two readings of a name, in the order in which kubectl tries them (apimachinery
    /// `schema.ParseResourceArg`): `a.b.c.d` is `a` in version `b` of group `c.d`, or else `a` of group `b.c.d`.
    fn readings(typed: &'a str) -> impl Iterator<Item = Self> {
        let (name, rest) = typed.split_once('.').unwrap_or((typed, ""));
        let given = |text: &'a str| (!text.is_empty()).then_some(text);
        let versioned =
            rest.split_once('.').map(|(version, group)| Self { name, version: given(version), group: given(group) });
        let unversioned = Self { name, version: None, group: given(rest) };
        versioned.into_iter().chain([unversioned])
    }
}

/// The ways in which a name can match, from the strongest to the weakest.
#[derive(Clone, Copy)]
enum Way {
    Name,
    ShortName,
    ShortNameGroupPrefix,
    NameGroupPrefix,
    Kind,
}

impl DiscoveredResource {
    fn matches(&self, way: Way, wanted: ResourceName<'_>) -> bool {
        let is = |text: &str| text.eq_ignore_ascii_case(wanted.name);
        let name = || is(&self.plural) || is(self.singular());
        let short_name = || self.short_names.iter().any(|short| is(short));
        let version = wanted.version.is_none_or(|v| v == self.version);
        let group = wanted.group.is_none_or(|g| g == self.group);
        let group_prefix = wanted.group.is_some_and(|g| self.group.starts_with(g));
        match way {
            Way::Name => version && group && name(),
            Way::ShortName => version && group && short_name(),
            Way::ShortNameGroupPrefix => version && group_prefix && short_name(),
            Way::NameGroupPrefix => wanted.version.is_none() && group_prefix && name(),
            Way::Kind => version && group && is(&self.kind),
        }
    }

    fn singular(&self) -> &str {
        if self.singular.is_empty() { &self.kind } else { &self.singular }
    }

    fn typed_name(&self) -> String {
        typed_name(&self.plural, &self.group)
    }
}

/// Returns the first match of the strongest way. Kinds follow all other ways of all readings, as in `mappingFor`.
fn find<'a>(
    typed: &str,
    resources: &(impl Iterator<Item = &'a DiscoveredResource> + Clone),
) -> Result<Option<&'a DiscoveredResource>, InvalidInput> {
    let names = [Way::Name, Way::ShortName, Way::ShortNameGroupPrefix, Way::NameGroupPrefix];
    let tries = ResourceName::readings(typed)
        .flat_map(|reading| names.map(|way| (way, reading)))
        .chain(ResourceName::readings(typed).map(|reading| (Way::Kind, reading)));
    for (way, reading) in tries {
        let mut hits = resources.clone().filter(|r| !r.plural.contains('/') && r.matches(way, reading));
        let Some(first) = hits.next() else { continue };
        let rival = hits.find(|r| (&r.group, &r.version) == (&first.group, &first.version) && r.plural != first.plural);
        if let (Way::Name | Way::NameGroupPrefix, Some(second)) = (way, rival) {
            let (first, second) = (first.typed_name(), second.typed_name());
            return Err(InvalidInput::new(format!("{typed:?} may be {first} or {second}"), typed));
        }
        return Ok(Some(first));
    }
    Ok(None)
}

/// Returns at most three names whose distance is at most a third of the typed letters, whatever group was typed.
fn near<'a>(typed: &str, resources: impl Iterator<Item = &'a DiscoveredResource>) -> Vec<String> {
    let name = typed.split('.').next().unwrap_or(typed).to_lowercase();
    let allowed = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, String)> = Vec::new();
    for resource in resources.filter(|r| !r.plural.contains('/')) {
        let short = resource.short_names.contains(&name);
        let far = distance(&name, &resource.plural).min(distance(&name, resource.singular()));
        let far = if short { 0 } else { far };
        let suggestion = resource.typed_name();
        if far <= allowed && !found.iter().any(|(_, known)| *known == suggestion) {
            found.push((far, suggestion));
        }
    }
    found.sort_by_key(|(far, _)| *far);
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns the Levenshtein distance: the number of letters to insert, drop or change.
fn distance(from: &str, to: &str) -> usize {
    // `row` holds the distances of the letters of `from` read so far to each beginning of `to`.
    let mut row: Vec<usize> = (1..=to.chars().count()).collect();
    let mut result = row.len();
    for (read, a) in from.chars().enumerate() {
        let (mut diagonal, mut left) = (read, read + 1);
        for (cell, b) in row.iter_mut().zip(to.chars()) {
            let above = *cell;
            left = (diagonal + usize::from(a != b)).min(above.min(left) + 1);
            diagonal = above;
            *cell = left;
        }
        result = left;
    }
    result
}

fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean {}?", suggestions.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_dots_has_two_readings() {
        let read = |typed| -> Vec<_> { ResourceName::readings(typed).map(|r| (r.name, r.version, r.group)).collect() };
        assert_eq!(read("pods"), [("pods", None, None)]);
        assert_eq!(read("deployments.apps"), [("deployments", None, Some("apps"))]);
        assert_eq!(
            read("deployments.v1.apps"),
            [("deployments", Some("v1"), Some("apps")), ("deployments", None, Some("v1.apps"))]
        );
        assert_eq!(read("a.b.c.d"), [("a", Some("b"), Some("c.d")), ("a", None, Some("b.c.d"))]);
        assert_eq!(read("pods.v1."), [("pods", Some("v1"), None), ("pods", None, Some("v1."))]);
        assert_eq!(read("pods."), [("pods", None, None)]);
        assert_eq!(read(""), [("", None, None)]);
    }

    /// `group version plural singular kind short,names verbs`; `-` is empty.
    fn discovery() -> Vec<DiscoveredResource> {
        "- v1 pods pod Pod po get,list
         - v1 pods/log - Pod - get
         - v1 bindings binding Binding - create
         - v1 services service Service svc list
         - v1 events event Event ev list
         - v1 endpoints - Endpoints ep list
         events.k8s.io v1 events event Event ev list
         a.example v1 beacons beacon Beacon widgets,bcn list
         apps.example v1 deployments deployment Deployment - list
         apps v1 deployments deployment Deployment deploy list
         apps v1 statefulsets statefulset StatefulSet sts list
         autoscaling v2 horizontalpodautoscalers horizontalpodautoscaler HorizontalPodAutoscaler hpa list
         autoscaling v1 horizontalpodautoscalers horizontalpodautoscaler HorizontalPodAutoscaler hpa list
         storage.k8s.io v1 storageclasses storageclass StorageClass sc list
         storage.k8s.io v1beta1 onlybetas onlybeta OnlyBeta - list
         authentication.k8s.io v1 tokenreviews tokenreview TokenReview - create
         metrics.k8s.io v1beta1 pods pod PodMetrics - list
         example.com v2 widgets widg Widget wd,po list
         example.com v1 widgets widg Widget wd list
         v1.example.com v3 widgets widget Widget - list
         example.org v1 geese goose Goose - list
         example.org v1 gooses geese Geese - list"
            .lines()
            .map(|line| {
                let field: Vec<&str> = line.split_whitespace().collect();
                let text = |i: usize| field[i].trim_start_matches('-').to_owned();
                let list = |i: usize| {
                    let text = text(i);
                    let parts = text.split(',').filter(|part| !part.is_empty());
                    parts.map(str::to_owned).collect()
                };
                DiscoveredResource {
                    group: text(0),
                    version: text(1),
                    plural: text(2),
                    singular: text(3),
                    kind: text(4),
                    short_names: list(5),
                    namespaced: text(2) != "storageclasses",
                    verbs: list(6),
                }
            })
            .collect()
    }

    #[test]
    fn resolves_names_as_kubectl_does() {
        for (typed, expected) in [
            ("pods", "v1 pods"),
            ("pod", "v1 pods"),
            ("po", "v1 pods"),
            ("Pod", "v1 pods"),
            ("PODS", "v1 pods"),
            ("pods.v1.", "v1 pods"),
            ("pods.", "v1 pods"),
            ("pods.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods"),
            ("pods.v1beta1.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods"),
            // A group may be abbreviated to its beginning.
            ("pods.metrics", "metrics.k8s.io/v1beta1 pods"),
            ("events", "v1 events"),
            ("ev", "v1 events"),
            ("events.events.k8s.io", "events.k8s.io/v1 events"),
            ("ev.events", "events.k8s.io/v1 events"),
            ("endpoints", "v1 endpoints"),
            // A name precedes a short name; a whole group precedes an abbreviated group.
            ("bcn", "a.example/v1 beacons"),
            ("widgets", "example.com/v2 widgets"),
            ("deployments.apps", "apps/v1 deployments"),
            ("deploy.apps", "apps/v1 deployments"),
            ("deploy.ap", "apps/v1 deployments"),
            ("deployments.ap", "apps.example/v1 deployments"),
            ("deployment.v1.apps", "apps/v1 deployments"),
            ("Deployment.v1.apps", "apps/v1 deployments"),
            ("hpa", "autoscaling/v2 horizontalpodautoscalers"),
            // kubectl drops the version of a short name; `resolve` does not.
            ("hpa.v1.autoscaling", "autoscaling/v1 horizontalpodautoscalers"),
            ("horizontalpodautoscalers.v1.autoscaling", "autoscaling/v1 horizontalpodautoscalers"),
            ("storageclass.storage", "storage.k8s.io/v1 storageclasses"),
            ("onlybetas", "storage.k8s.io/v1beta1 onlybetas"),
            // Both readings exist: the one with a version precedes.
            ("widgets.v1.example.com", "example.com/v1 widgets"),
            ("widgets.v3.v1.example.com", "v1.example.com/v3 widgets"),
            ("widgets.example.com", "example.com/v2 widgets"),
            ("widgets.v2.example.com", "example.com/v2 widgets"),
            // A name precedes a kind, whatever the order of groups.
            ("widget", "v1.example.com/v3 widgets"),
            ("widget.example.com", "example.com/v2 widgets"),
            ("widg", "example.com/v2 widgets"),
            ("goose", "example.org/v1 geese"),
        ] {
            let found = resolve(typed, &discovery()).unwrap_or_else(|e| panic!("{typed}: {e}"));
            assert_eq!(format!("{} {}", found.api_version(), found.plural()), expected, "{typed}");
        }
        let found = resolve("sc", &discovery()).unwrap();
        assert_eq!(found, Resource::STORAGE_CLASSES);
    }

    #[test]
    fn explains_names_that_do_not_resolve() {
        for (typed, expected) in [
            ("pod s", r#"no resource "pod s" on this server; did you mean pods or pods.metrics.k8s.io?"#),
            ("pods.v1", r#"no resource "pods.v1" on this server; did you mean pods or pods.metrics.k8s.io?"#),
            (
                "deploymnets",
                r#"no resource "deploymnets" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            (
                "deployments.v9.apps",
                r#"no resource "deployments.v9.apps" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            // A group cannot be abbreviated where a version was typed.
            (
                "deployments.v1.ap",
                r#"no resource "deployments.v1.ap" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            ("sts.v9.apps", r#"no resource "sts.v9.apps" on this server; did you mean statefulsets.apps?"#),
            ("pods/log", r#"no resource "pods/log" on this server"#),
            ("zebras", r#"no resource "zebras" on this server"#),
            ("", r#"no resource "" on this server"#),
            ("bindings", r#""bindings" is bindings, which the server does not list"#),
            ("tokenreview", r#""tokenreview" is tokenreviews.authentication.k8s.io, which the server does not list"#),
            ("geese", r#""geese" may be geese.example.org or gooses.example.org"#),
        ] {
            let error = resolve(typed, &discovery()).expect_err(typed);
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn distance_is_levenshteins() {
        for (a, b, expected) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("pod s", "pods", 1),
            ("deploymnets", "deployments", 2),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
