//! Resolves a typed name to a resource, by the rules of kubectl.

use super::error::ErrorKind;
use super::resource::{Resource, typed_name};
use crate::meta::OneLine;

/// A resource in a server's discovery documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DiscoveredResource {
    /// `""` for core.
    pub group: String,
    pub version: String,
    /// The `name` in the document. One that contains a `/` is a subresource, which is never found.
    pub plural: String,
    /// If empty, the kind in lower case is used instead, as in kubectl.
    pub singular: String,
    pub kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub is_namespaced: bool,
    /// Like `list`.
    pub verbs: Vec<String>,
}

impl From<&DiscoveredResource> for Resource {
    fn from(found: &DiscoveredResource) -> Self {
        let DiscoveredResource { group, version, plural, kind, is_namespaced, .. } = found.clone();
        let resource = Self::new(group, version, plural, kind);
        let resource = if is_namespaced { resource } else { resource.cluster_scoped() };
        if found.has_verb("watch") { resource } else { resource.without_watch() }
    }
}

/// Selects the versions of groups that may contain a resource of the typed name.
pub(super) struct Wanted<'a> {
    typed: &'a str,
    by_prefix: bool,
}

impl<'a> Wanted<'a> {
    /// Selects the group that was typed, or all groups if none was typed.
    pub fn exactly(typed: &'a str) -> Self {
        Self { typed, by_prefix: false }
    }

    /// Selects all groups that begin with the typed text.
    pub fn by_prefix(typed: &'a str) -> Self {
        Self { typed, by_prefix: true }
    }

    pub fn has(&self, group: &str, version: &str) -> bool {
        ResourceName::readings(self.typed).any(|name| match name.group {
            None => true,
            Some(beginning) if self.by_prefix && !name.is_exact => group.starts_with(beginning),
            Some(whole) => whole == group && name.version.is_none_or(|named| named == version),
        })
    }
}

pub(super) fn has_group(typed: &str) -> bool {
    ResourceName::readings(typed).all(|name| name.group.is_some_and(|group| !group.is_empty()))
}

/// Finds the resource for a typed name, by the rules of [`Client::resolve`](super::Client::resolve).
///
/// The resources are in the server's order of preference: the core group first, and in each group the preferred version
/// first.
///
/// # Errors
///
/// [`ErrorKind::Unresolved`] when two resources of one group and version have the name.
pub(super) fn find<'a>(
    typed: &str,
    resources: impl Iterator<Item = &'a DiscoveredResource> + Clone,
) -> Result<Option<&'a DiscoveredResource>, ErrorKind> {
    let listed = resources.filter(|resource| resource.has_verb("list"));
    best(typed, &listed).map_err(|ambiguous| ErrorKind::Unresolved(OneLine(&ambiguous).to_string()))
}

/// Returns the resources of a category, in the server's order, each in its preferred version.
pub(super) fn members<'a>(category: &str, resources: impl Iterator<Item = &'a DiscoveredResource>) -> Vec<Resource> {
    let mut members = Vec::<&DiscoveredResource>::new();
    for resource in resources.filter(|resource| resource.has_verb("list") && !resource.plural.contains('/')) {
        let is_member = resource.categories.iter().any(|of| of == category);
        let is_new =
            || !members.iter().any(|known| (&known.group, &known.plural) == (&resource.group, &resource.plural));
        if is_member && is_new() {
            members.push(resource);
        }
    }
    members.into_iter().map(Resource::from).collect()
}

/// Returns why no resource has the name. `unread` contains the paths of documents that could not be read.
pub(super) fn unresolved<'a>(
    typed: &str,
    discovered: &[&DiscoveredResource],
    unread: impl Iterator<Item = &'a str>,
) -> String {
    let all = || discovered.iter().copied();
    let listed = || all().filter(|resource| resource.has_verb("list"));
    let in_category = unique(listed().filter(|resource| resource.categories.iter().any(|category| category == typed)));
    let reason = match best(typed, &all()) {
        Ok(Some(found)) => format!("{typed:?} is {}, which the server does not list", found.typed_name()),
        Err(ambiguous) => ambiguous,
        Ok(None) if !in_category.is_empty() => {
            format!("{typed:?} is a category of resources: name one of {}", some_of(&in_category))
        }
        Ok(None) => {
            let near = near(typed, listed());
            let near = if near.is_empty() { near } else { format!("; did you mean {near}?") };
            format!("no resource {typed:?} on this server{near}")
        }
    };
    let unread: Vec<_> = unread.map(str::to_owned).collect();
    let unread = if unread.is_empty() { String::new() } else { format!("; could not read {}", some_of(&unread)) };
    OneLine(&format!("{reason}{unread}")).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceName<'a> {
    /// A plural, singular or short name, or a kind.
    name: &'a str,
    /// The version, in the reading `name.version.group`.
    version: Option<&'a str>,
    /// The group or its beginning; `""` for the core group.
    group: Option<&'a str>,
    /// True if the group cannot be abbreviated.
    is_exact: bool,
}

impl<'a> ResourceName<'a> {
    /// Returns the one or two readings of a name, in the order in which kubectl tries them.
    ///
    /// `a.b.c.d` is `a` in version `b` of group `c.d`, or else `a` of group `b.c.d` (apimachinery
    /// `schema.ParseResourceArg`). A name with a slash has one reading: `apiVersion/kind` (apimachinery
    /// `schema.ParseGroupVersion`).
    fn readings(typed: &'a str) -> impl Iterator<Item = Self> {
        let given = |text: &'a str| (!text.is_empty()).then_some(text);
        let (first, second) = if let Some((api_version, name)) = typed.rsplit_once('/') {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            (None, Self { name, version: Some(version), group: Some(group), is_exact: true })
        } else {
            let (name, rest) = typed.split_once('.').unwrap_or((typed, ""));
            let unversioned = Self { name, version: None, group: given(rest), is_exact: false };
            let versioned = rest.split_once('.').map(|(version, group)| (given(version), given(group)));
            (versioned.map(|(version, group)| Self { version, group, ..unversioned }), unversioned)
        };
        first.into_iter().chain([second])
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
        let group_prefix = !wanted.is_exact && wanted.group.is_some_and(|g| self.group.starts_with(g));
        match way {
            Way::Name => version && group && name(),
            Way::ShortName => version && group && short_name(),
            Way::ShortNameGroupPrefix => version && group_prefix && short_name(),
            Way::NameGroupPrefix => wanted.version.is_none() && group_prefix && name(),
            Way::Kind => version && group && is(&self.kind),
        }
    }

    fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }

    fn singular(&self) -> &str {
        if self.singular.is_empty() { &self.kind } else { &self.singular }
    }

    fn typed_name(&self) -> String {
        typed_name(&self.plural, &self.group)
    }
}

/// Returns the first match of the strongest way. As in kubectl's `mappingFor`, kinds come after all other ways.
fn best<'a>(
    typed: &str,
    resources: &(impl Iterator<Item = &'a DiscoveredResource> + Clone),
) -> Result<Option<&'a DiscoveredResource>, String> {
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
            return Err(format!("{typed:?} may be {first} or {second}"));
        }
        return Ok(Some(first));
    }
    Ok(None)
}

fn unique<'a>(resources: impl Iterator<Item = &'a DiscoveredResource>) -> Vec<String> {
    let mut names = Vec::new();
    for name in resources.map(DiscoveredResource::typed_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the first names, and the number of the others.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns at most three similar names, whatever group was typed. At most a third of the typed letters may differ.
fn near<'a>(typed: &str, resources: impl Iterator<Item = &'a DiscoveredResource>) -> String {
    let name = ResourceName::readings(typed).last().map_or(typed, |reading| reading.name).to_lowercase();
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
    found.into_iter().take(3).map(|(_, name)| name).collect::<Vec<_>>().join(" or ")
}

/// Returns the Levenshtein distance: the number of letters to insert, drop or change.
fn distance(from: &str, to: &str) -> usize {
    // `row` contains the distances of the letters of `from` that were read so far to each beginning of `to`.
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

    fn resolve(typed: &str, discovered: &[DiscoveredResource]) -> Result<Resource, String> {
        match find(typed, discovered.iter()) {
            Ok(Some(found)) => Ok(found.into()),
            Ok(None) => Err(unresolved(typed, &discovered.iter().collect::<Vec<_>>(), [].into_iter())),
            Err(error) => Err(error.to_string()),
        }
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
         storage.k8s.io v1 storageclasses storageclass StorageClass sc list,watch
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
                    categories: if text(0) == "apps" { vec!["all".to_owned()] } else { Vec::new() },
                    is_namespaced: text(2) != "storageclasses",
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
            // `apiVersion/kind`, which names one group and version.
            ("v1/Pod", "v1 pods"),
            ("v1/pods", "v1 pods"),
            ("apps/v1/Deployment", "apps/v1 deployments"),
            ("autoscaling/v1/HorizontalPodAutoscaler", "autoscaling/v1 horizontalpodautoscalers"),
            ("metrics.k8s.io/v1beta1/PodMetrics", "metrics.k8s.io/v1beta1 pods"),
            ("example.com/v1/Widget", "example.com/v1 widgets"),
            ("v1.example.com/v3/Widget", "v1.example.com/v3 widgets"),
            ("events.k8s.io/v1/Event", "events.k8s.io/v1 events"),
            ("example.org/v1/Goose", "example.org/v1 geese"),
        ] {
            let found = resolve(typed, &discovery()).unwrap_or_else(|e| panic!("{typed}: {e}"));
            assert_eq!(format!("{} {}", found.api_version(), found.plural()), expected, "{typed}");
        }
        let found = resolve("sc", &discovery()).unwrap();
        assert_eq!(found, Resource::STORAGE_CLASSES);
        assert!(!resolve("pods", &discovery()).unwrap().is_watchable());
    }

    #[test]
    fn a_category_has_each_resource_once_in_its_preferred_version() {
        let mut discovered = discovery();
        for resource in &mut discovered {
            if resource.group == "autoscaling" || resource.plural == "pods" || resource.plural.contains('/') {
                resource.categories.push("all".to_owned());
            }
        }
        let members = members("all", discovered.iter());
        let names: Vec<_> = members.iter().map(|found| format!("{} {}", found.api_version(), found.plural())).collect();
        let expected = [
            "v1 pods",
            "apps/v1 deployments",
            "apps/v1 statefulsets",
            "autoscaling/v2 horizontalpodautoscalers",
            "metrics.k8s.io/v1beta1 pods",
        ];
        assert_eq!(names, expected);
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
            // A group cannot be abbreviated or left out.
            (
                "v1/Deployment",
                r#"no resource "v1/Deployment" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            ("v1/hpa", r#"no resource "v1/hpa" on this server; did you mean horizontalpodautoscalers.autoscaling?"#),
            ("ap/v1/deploy", r#"no resource "ap/v1/deploy" on this server; did you mean deployments.apps?"#),
            (
                "apps/v9/Deployment",
                r#"no resource "apps/v9/Deployment" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            ("a/apps/v1/Zebra", r#"no resource "a/apps/v1/Zebra" on this server"#),
            ("/v1/Zebra", r#"no resource "/v1/Zebra" on this server"#),
            ("apps//Zebra", r#"no resource "apps//Zebra" on this server"#),
            ("apps/v1/", r#"no resource "apps/v1/" on this server"#),
            ("zebras", r#"no resource "zebras" on this server"#),
            ("", r#"no resource "" on this server"#),
            ("bindings", r#""bindings" is bindings, which the server does not list"#),
            ("tokenreview", r#""tokenreview" is tokenreviews.authentication.k8s.io, which the server does not list"#),
            ("all", r#""all" is a category of resources: name one of deployments.apps, statefulsets.apps"#),
            ("geese", r#""geese" may be geese.example.org or gooses.example.org"#),
        ] {
            let error = resolve(typed, &discovery()).expect_err(typed);
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn names_what_could_not_be_read() {
        let paths: Vec<_> = (1..=10).map(|n| format!("/apis/g{n}/v1\n")).collect();
        assert_eq!(
            unresolved("x", &[], paths.iter().map(String::as_str)),
            "no resource \"x\" on this server; could not read /apis/g1/v1\\n, /apis/g2/v1\\n, /apis/g3/v1\\n, /apis/g4/v1\\n, \
             /apis/g5/v1\\n, /apis/g6/v1\\n, /apis/g7/v1\\n, /apis/g8/v1\\n and 2 more"
        );
    }

    #[test]
    fn wants_the_groups_of_a_name() {
        for (typed, group, version, exactly, by_prefix) in [
            ("pods", "", "v1", true, true),
            ("pods", "apps", "v1", true, true),
            ("pods.v1.", "apps", "v1", true, true),
            ("deployments.apps", "apps", "v1", true, true),
            ("deployments.apps", "", "v1", false, false),
            ("deployments.apps", "apps.example", "v1", false, true),
            ("deployments.ap", "apps", "v1", false, true),
            ("deployments.v1.apps", "apps", "v1", true, true),
            ("deployments.v1.apps", "apps", "v2", false, true),
            ("deployments.v1.apps", "v1.apps", "v2", true, true),
            ("widgets.example.com", "com", "example", true, true),
            ("apps/v1/Deployment", "apps", "v1", true, true),
            ("apps/v1/Deployment", "apps", "v2", false, false),
            ("apps/v1/Deployment", "apps.example", "v1", false, false),
            ("v1/Pod", "", "v1", true, true),
            ("v1/Pod", "apps", "v1", false, false),
        ] {
            let wants = [Wanted::exactly(typed), Wanted::by_prefix(typed)].map(|wanted| wanted.has(group, version));
            assert_eq!(wants, [exactly, by_prefix], "{typed} {group}/{version}");
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
