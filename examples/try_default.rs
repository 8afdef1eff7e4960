//! Prints the names of the Pods in the namespace that kubectl uses, in the cluster that kubectl uses:
//! `cargo run --example try_default`.

use std::error::Error;

use listwatch::client::{Client, Kubeconfig, ListParams, Resource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // `Client::try_default()?` does both steps, for a program that does not need the namespace.
    let config = Kubeconfig::default().load()?;
    let namespace = config.default_namespace().to_owned();
    let client = Client::try_from(config)?;

    let mut names = client
        .list_with(&Resource::PODS, &ListParams::default(), |pod| pod.meta().map(|meta| meta.name().into_owned()))
        .namespaces([namespace]);
    while let Some(name) = names.next().await {
        println!("{}", name?);
    }
    Ok(())
}
