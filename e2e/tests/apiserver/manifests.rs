//! The manifests of `deploy`: the server accepts each field, and the mirror's account has the rights that it needs and
//! no others.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use listwatch_e2e::{Result, Server};
use serde_json::Value;

const PORT: u16 = 16976;
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/manifests.yaml");
const ACCOUNT: &str = "system:serviceaccount:listwatch:listwatch-mirror";
/// An account without roles of its own. The server grants some rights to each account, and more with each release.
const OTHER_ACCOUNT: &str = "system:serviceaccount:listwatch:other";
const READS: [&str; 3] = ["get", "list", "watch"];

/// A verb, a group and a resource.
type Right = (String, String, String);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_of_the_manifests_has_only_the_rights_that_the_mirror_needs() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    server.kubectl(&["create", "namespace", "listwatch"])?;
    server.kubectl(&["apply", "--validate=strict", "-f", MANIFESTS])?;
    let kinds = |text: &str| text.lines().filter(|line| line.starts_with("kind: ")).count();
    let applied = ["deploy,svc,sa,pdb,netpol", "clusterrole,clusterrolebinding"].map(|kinds| {
        server
            .names(&[kinds, "-n", "listwatch", "-l", "app.kubernetes.io/name=listwatch-mirror"])
            .map(|names| names.len())
    });
    let [namespaced, global] = applied;
    // Kinds of one name are counted once.
    assert_eq!((namespaced?, global?), (1, 2));
    assert_eq!(kinds(&fs::read_to_string(MANIFESTS)?), 10);
    let flow_schemas = server.names(&["flowschema", "-l", "app.kubernetes.io/name=listwatch-mirror"])?;
    assert_eq!(flow_schemas.len(), 1, "requests of the mirror have a priority level");

    let reviews = Api::<SubjectAccessReview>::all(server.kube_client().await?);
    let of_each_account = rights(&server, &reviews, OTHER_ACCOUNT).await?;
    let mut allowed = rights(&server, &reviews, ACCOUNT).await?;
    allowed.retain(|right| !of_each_account.contains(right));
    assert_eq!(allowed, needed(&server)?);
    for subresource in ["exec", "proxy", "log", "attach", "portforward"] {
        assert!(!is_allowed(&reviews, ACCOUNT, "get", "", "pods", Some(subresource)).await?, "pods/{subresource}");
    }
    for path in ["/metrics", "/logs", "/debug/pprof"] {
        let attributes = NonResourceAttributes { path: Some(path.into()), verb: Some("get".into()) };
        let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec(ACCOUNT) };
        assert!(!review(&reviews, spec).await?, "{path}");
    }
    Ok(())
}

async fn rights(server: &Server, reviews: &Api<SubjectAccessReview>, account: &str) -> Result<BTreeSet<Right>> {
    let mut allowed = BTreeSet::new();
    for resource in server.kubectl(&["api-resources", "-o", "name"])?.lines() {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        for verb in READS.into_iter().chain(["create", "update", "patch", "delete", "deletecollection", "impersonate"])
        {
            if is_allowed(reviews, account, verb, group, plural, None).await? {
                allowed.insert((verb.to_owned(), group.to_owned(), plural.to_owned()));
            }
        }
    }
    Ok(allowed)
}

/// Returns the rights for the resources in the arguments of the container, and those for reviews.
fn needed(server: &Server) -> Result<BTreeSet<Right>> {
    let deployment = server.kubectl(&["get", "deploy", "listwatch-mirror", "-n", "listwatch", "-o", "json"])?;
    let deployment: Value = serde_json::from_str(&deployment)?;
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().ok_or("no arguments")?;
    let resources = args.iter().filter_map(Value::as_str).skip(1).filter(|arg| !arg.starts_with("--"));
    let mut needed = BTreeSet::new();
    for resource in resources {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        needed.extend(READS.map(|verb| (verb.to_owned(), group.to_owned(), plural.to_owned())));
    }
    assert_eq!(needed.len(), 4 * READS.len());
    for (group, resource) in
        [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
    {
        needed.insert(("create".to_owned(), group.to_owned(), resource.to_owned()));
    }
    Ok(needed)
}

async fn is_allowed(
    reviews: &Api<SubjectAccessReview>,
    account: &str,
    verb: &str,
    group: &str,
    resource: &str,
    subresource: Option<&str>,
) -> Result<bool> {
    let attributes = ResourceAttributes {
        verb: Some(verb.into()),
        group: Some(group.into()),
        resource: Some(resource.into()),
        subresource: subresource.map(Into::into),
        ..ResourceAttributes::default()
    };
    review(reviews, SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..spec(account) }).await
}

/// Returns the specification of a review of an account of the namespace, without attributes.
fn spec(account: &str) -> SubjectAccessReviewSpec {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:listwatch", "system:authenticated"];
    SubjectAccessReviewSpec {
        user: Some(account.into()),
        groups: Some(groups.map(Into::into).to_vec()),
        ..SubjectAccessReviewSpec::default()
    }
}

async fn review(reviews: &Api<SubjectAccessReview>, spec: SubjectAccessReviewSpec) -> Result<bool> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviewed = reviews.create(&PostParams::default(), &review).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}
