//! Keeps custom resources in a cache, up to date, as `follower.rs` does with Pods.
//!
//! The handlers receive every object, including the initial ones, and read an annotation.

use std::fmt::Debug;
use std::hash::Hash;

use anyhow::{Context, bail};
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use listwatch::Json;
use listwatch_cache::{Object, Reflector, StorageFormat, Store};
use listwatch_corpus::custom::CustomKind;

use crate::custom_client::{api_resource, resource};
use crate::custom_types::{Application, Certificate, Custom, Revision, SlimApplication, SlimCertificate, SlimRevision};
use crate::follower::{self, CHANGED_AT, Followed, Handler, Server};

pub async fn follow(way: &str, kind: &str, server: &Server<'_>, handler: Handler) -> anyhow::Result<Box<dyn Followed>> {
    let kind = CustomKind::by_name(kind).with_context(|| format!("unknown kind {kind:?}"))?;
    match kind {
        CustomKind::Certificate => follow_of::<Certificate, SlimCertificate>(way, kind, server, handler).await,
        CustomKind::Revision => follow_of::<Revision, SlimRevision>(way, kind, server, handler).await,
        CustomKind::Application => follow_of::<Application, SlimApplication>(way, kind, server, handler).await,
    }
}

async fn follow_of<T: Custom, Slim: Custom>(
    way: &str,
    kind: CustomKind,
    server: &Server<'_>,
    handler: Handler,
) -> anyhow::Result<Box<dyn Followed>> {
    let (streaming, resource) = (watcher::Config::default().streaming_lists(), resource(kind));
    let drops = |object: &mut Slim| object.meta_mut().managed_fields = None;
    let (way, on_caller_runtime) = way.strip_suffix("-caller").map_or((way, false), |way| (way, true));
    let (is_typed, format) = match way {
        "custom-encoded" => (false, StorageFormat::Encoded),
        "custom-compressed" => (false, StorageFormat::Compressed),
        "custom-encoded-typed" => (true, StorageFormat::Encoded),
        "custom-compressed-typed" => (true, StorageFormat::Compressed),
        "custom-kube-dynamic" => {
            return kube::<DynamicObject>(server, api_resource(kind), streaming, |_| {}, handler).await;
        }
        "custom-kube-typed" => return kube::<T>(server, (), streaming, |_| {}, handler).await,
        "custom-kube-typed-list" => return kube::<T>(server, (), watcher::Config::default(), |_| {}, handler).await,
        "custom-kube-slim" => return kube::<Slim>(server, (), streaming, drops, handler).await,
        _ => bail!("unknown way {way:?}"),
    };
    let client = server.listwatch(on_caller_runtime)?;
    Ok(if is_typed {
        let reflector = Reflector::<Json<T>>::new(&client, &resource).store(Store::new(format)).prepare();
        let decode = |object: &Object<Json<T>>, handler: &Handler| {
            let object = object.decode()?;
            let annotations = object.meta().annotations.as_ref();
            handler.record(annotations.and_then(|annotations| annotations.get(CHANGED_AT)));
            Ok(())
        };
        Box::new(follower::handle(reflector, handler, decode).await?)
    } else {
        let reflector = Reflector::<[u8]>::new(&client, &resource).store(Store::new(format)).prepare();
        Box::new(follower::handle(reflector, handler, |object, handler| handler.record_bytes(&object.meta()?)).await?)
    })
}

async fn kube<K>(
    server: &Server<'_>,
    types: K::DynamicType,
    config: watcher::Config,
    modify: impl FnMut(&mut K) + Send + 'static,
    handler: Handler,
) -> anyhow::Result<Box<dyn Followed>>
where
    K: kube::Resource + Clone + Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync + Unpin + Debug,
{
    let api = Api::<K>::all_with(server.kube_client().await?, &types);
    Ok(Box::new(follower::kube(watcher(api, config).modify(modify), types, handler).await?))
}
