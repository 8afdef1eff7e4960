//! The programs do the same on kube and on listwatch: both run against the same server, whose objects a script changes.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::ensure;
use listwatch_peers::migrations::policies::{Lookup, Request, refusal};
use listwatch_peers::migrations::server::ApiServer;
use listwatch_peers::migrations::{Program, Running};
use serde_json::{Value, json};

const ON_KUBE: [bool; 2] = [true, false];

/// Waits until a program has reacted to the last change. Only the kube router needs more than a moment: its list.
async fn eventually<T: PartialEq + Debug>(found: impl AsyncFn() -> T, expected: T) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let now = found().await;
        if now == expected {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(60), "found {now:?}, expected {expected:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn pod(namespace: &str, name: &str, role: &str, ip: Option<&str>, ready: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"role": role}},
        "spec": {"containers": [{"name": "worker"}]},
        "status": {
            "phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}],
        },
    })
}

#[tokio::test]
async fn routers_have_the_same_endpoints() -> anyhow::Result<()> {
    for on_kube in ON_KUBE {
        let server = ApiServer::start()?;
        server.put("pods", pod("a", "ready", "worker", Some("10.0.0.1"), "True"));
        server.put("pods", pod("a", "waits", "worker", Some("10.0.0.2"), "False"));
        server.put("pods", pod("b", "ready", "worker", Some("10.0.0.3"), "True"));
        server.put("pods", pod("b", "other", "router", Some("10.0.0.4"), "True"));
        let running = Running::start(Program::Router, on_kube, &server.url, Duration::from_millis(100))?;
        let Running::Router(workers) = running else { unreachable!() };
        let endpoints = async || {
            let found = workers.endpoints();
            let hosts = found.iter().map(|((namespace, name), url)| {
                let host = url.strip_prefix("http://10.0.0.").and_then(|host| host.strip_suffix(":8000"));
                format!("{namespace}/{name} {}", host.unwrap_or(url))
            });
            hosts.collect::<Vec<_>>().join(", ")
        };
        eventually(endpoints, "a/ready 1, b/ready 3".into()).await?;
        server.put("pods", pod("a", "waits", "worker", Some("10.0.0.2"), "True"));
        eventually(endpoints, "a/ready 1, a/waits 2, b/ready 3".into()).await?;
        server.put("pods", pod("a", "ready", "worker", Some("10.0.0.1"), "False"));
        eventually(endpoints, "a/waits 2, b/ready 3".into()).await?;
        server.delete("pods", "a", "waits");
        eventually(endpoints, "b/ready 3".into()).await?;
        // The same name on another node.
        server.put("pods", pod("a", "waits", "worker", Some("10.0.0.9"), "True"));
        eventually(endpoints, "a/waits 9, b/ready 3".into()).await?;
        // It is no worker any more.
        server.put("pods", pod("b", "ready", "router", Some("10.0.0.3"), "True"));
        eventually(endpoints, "a/waits 9".into()).await?;
        server.put("pods", pod("b", "other", "worker", Some("10.0.0.4"), "True"));
        eventually(endpoints, "a/waits 9, b/other 4".into()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn operators_write_the_same_objects() -> anyhow::Result<()> {
    for on_kube in ON_KUBE {
        let server = ApiServer::start()?;
        let app = |name: &str, image: &str, replicas: i32| {
            json!({
                "metadata": {"namespace": "shop", "name": name},
                "spec": {"image": image, "replicas": replicas, "port": 80, "env": {"A": "1"}},
            })
        };
        server.put("webapps", app("web", "web:1", 2));
        let _running = Running::start(Program::Operator, on_kube, &server.url, Duration::ZERO)?;
        let written = async || summary(&server);
        eventually(written, "web g1 0/2 false: Deployment web:1 2 of web, Service 80 of web".into()).await?;
        // The Pods get ready.
        let ready =
            |replicas: i32| move |deployment: &mut Value| deployment["status"] = json!({"readyReplicas": replicas});
        server.modify("deployments", "shop", "web", ready(2));
        eventually(written, "web g1 2/2 true: Deployment web:1 2 of web, Service 80 of web".into()).await?;
        server
            .modify("webapps", "shop", "web", |app| app["spec"] = json!({"image": "web:2", "replicas": 3, "port": 81}));
        eventually(written, "web g2 2/3 false: Deployment web:2 3 of web, Service 81 of web".into()).await?;
        // Somebody changes and deletes what the app owns.
        server.modify("services", "shop", "web", |service| service["spec"]["ports"] = json!([{"port": 1}]));
        eventually(written, "web g2 2/3 false: Deployment web:2 3 of web, Service 81 of web".into()).await?;
        server.delete("deployments", "shop", "web");
        eventually(written, "web g2 0/3 false: Deployment web:2 3 of web, Service 81 of web".into()).await?;
        server.put("webapps", app("api", "api:1", 1));
        let api = "api g1 0/1 false: Deployment api:1 1 of api, Service 80 of api";
        let web = "web g2 0/3 false: Deployment web:2 3 of web, Service 81 of web";
        eventually(written, format!("{api}; {web}")).await?;
        // The finalizer deletes what the app owns, then the app goes.
        server.delete("webapps", "shop", "web");
        eventually(written, api.into()).await?;
        server.delete("webapps", "shop", "api");
        eventually(written, String::new()).await?;
        for plural in ["deployments", "services"] {
            assert!(server.keys(plural).is_empty(), "{plural}");
        }
    }
    Ok(())
}

/// Describes the apps, and what they own.
fn summary(server: &ApiServer) -> String {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["name"].as_str().unwrap().to_owned();
    let [deployments, services] = ["deployments", "services"].map(|plural| server.list(plural).collect::<Vec<_>>());
    let apps = server.list("webapps").map(|app| {
        let status = &app["status"];
        let mut parts = Vec::new();
        for deployment in deployments.iter().filter(|object| name(object) == name(&app)) {
            let spec = &deployment["spec"];
            let image = spec["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
            parts.push(format!("Deployment {image} {} of {}", spec["replicas"], owner(deployment)));
        }
        for service in services.iter().filter(|object| name(object) == name(&app)) {
            parts.push(format!("Service {} of {}", service["spec"]["ports"][0]["port"], owner(service)));
        }
        let [generation, ready, available] =
            ["observedGeneration", "readyReplicas", "isAvailable"].map(|field| &status[field]);
        let replicas = &app["spec"]["replicas"];
        format!("{} g{generation} {ready}/{replicas} {available}: {}", name(&app), parts.join(", "))
    });
    apps.collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn policy_servers_give_the_same_answers() -> anyhow::Result<()> {
    let namespace = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let request = |name: &str, object: Value| Request { namespace: "shop".into(), name: name.into(), object };
    let service = request("web", json!({"metadata": {"labels": {"host": "shop.example.com"}}}));
    let source = json!({"configMapRef": {"name": "settings"}});
    let deployment = json!({"spec": {"template": {"spec": {"containers": [{"envFrom": [source]}]}}}});
    let deployment = request("web", deployment);
    for on_kube in ON_KUBE {
        let server = ApiServer::start()?;
        let running = Running::start(Program::Policies, on_kube, &server.url, Duration::ZERO)?;
        let answer = async |request: &Request| {
            let refused = match &running {
                Running::PoliciesWithKube(caches) => refusal(caches, request).await,
                Running::PoliciesWithListwatch(caches) => refusal(caches, request).await,
                _ => unreachable!(),
            };
            refused.unwrap().unwrap_or_else(|| "allowed".into())
        };
        let of_service = async || answer(&service).await;
        let of_deployment = async || answer(&deployment).await;
        eventually(of_service, "no namespace shop".into()).await?;
        server.put("namespaces", namespace("shop", json!({})));
        eventually(of_service, "the namespace shop has no team".into()).await?;
        server.put("namespaces", namespace("shop", json!({"team": "red"})));
        eventually(of_service, "allowed".into()).await?;
        let other = json!({
            "metadata": {"namespace": "old", "name": "web", "labels": {"host": "shop.example.com"}}, "spec": {},
        });
        server.put("services", other);
        eventually(of_service, "old/web has the host shop.example.com".into()).await?;
        server.delete("services", "old", "web");
        eventually(of_service, "allowed".into()).await?;
        eventually(of_deployment, "no ConfigMap settings".into()).await?;
        server.put("configmaps", json!({"metadata": {"namespace": "shop", "name": "settings"}, "data": {"a": "1"}}));
        eventually(of_deployment, "allowed".into()).await?;
        for number in 0..100 {
            server.put("deployments", json!({"metadata": {"namespace": "shop", "name": format!("d{number}")}}));
        }
        eventually(of_deployment, "shop has 100 Deployments".into()).await?;
        server.delete("deployments", "shop", "d7");
        eventually(of_deployment, "allowed".into()).await?;
        server.delete("configmaps", "shop", "settings");
        eventually(of_deployment, "no ConfigMap settings".into()).await?;
        same_objects(&running, on_kube).await?;
    }
    Ok(())
}

/// Policies get whole objects with their kinds, without `managedFields`.
async fn same_objects(running: &Running, on_kube: bool) -> anyhow::Result<()> {
    let namespaces = match running {
        Running::PoliciesWithKube(caches) => caches.list("v1", "Namespace", None, Some(("team", "red"))).await?,
        Running::PoliciesWithListwatch(caches) => caches.list("v1", "Namespace", None, Some(("team", "red"))).await?,
        _ => unreachable!(),
    };
    let found: Vec<Value> = namespaces.iter().map(|json| serde_json::from_slice(json)).collect::<Result<_, _>>()?;
    let expected = json!([{
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": "shop", "labels": {"team": "red"}, "uid": "00000000-0000-4000-8000-000000000002",
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "resourceVersion": "3",
        },
    }]);
    assert_eq!(Value::from(found), expected, "on kube: {on_kube}");
    Ok(())
}
