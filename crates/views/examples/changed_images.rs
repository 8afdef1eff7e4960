//! What a controller needs of a cache: an index by image, and a predicate that ignores changes of anything but the
//! images.
//!
//! `cargo run -p listwatch-views --example changed_images` runs on recorded Pods, without a cluster. In a cluster, a
//! `Reflector` fills the store.

use std::error::Error;

use listwatch::{Encoding, Event, ItemError, ListDecoder};
use listwatch_cache::{Change, Object, StorageFormat, Store};
use listwatch_views::core_v1::{ContainerView, PodView};
use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let by_image = store.index("image", |pod| Ok::<Vec<_>, ItemError>(images(pod.view()?).map(String::from).collect()));
    let recorded = listwatch_testserver::recorded_pods();
    let (mut body, mut decoder) = (&recorded[..], ListDecoder::new());
    while let Some(event) = decoder.decode(&mut body)? {
        if let Event::Item(item) = event {
            drop(store.apply(item.encoding(), item.bytes())?);
        }
    }
    for image in by_image.values() {
        println!("{image}: {} Pods", by_image.count(&image));
    }

    // Two changes of a Pod: a heartbeat, and a new image.
    let mut changes = store.subscribe().start();
    let object = store.snapshot().iter().next().ok_or("no Pod")?;
    let mut pod = k8s_pb::api::core::v1::Pod::decode(&**object.encoded()?)?;
    for (version, image) in [("v1", None), ("v2", Some("nginx:2"))] {
        pod.metadata.get_or_insert_default().resource_version = Some(version.to_owned());
        if let (Some(image), Some(container)) = (image, pod.spec.get_or_insert_default().containers.first_mut()) {
            container.image = Some(image.to_owned());
        }
        drop(store.apply(Encoding::Protobuf, &pod.encode_to_vec())?);
        while let Some(change) = changes.try_next() {
            if let Change::Applied { old, new, .. } = change {
                let is_wanted = has_other_images(old.as_ref(), &new)?;
                println!(
                    "{} at {}: {}",
                    new.name(),
                    new.resource_version(),
                    if is_wanted { "reconcile" } else { "ignore" }
                );
            }
        }
    }
    Ok(())
}

fn images(pod: PodView<'_>) -> impl Iterator<Item = &str> {
    let spec = pod.spec();
    spec.init_containers().iter().chain(spec.containers()).map(ContainerView::image)
}

/// A predicate: true for a new Pod, and for one whose images changed.
fn has_other_images(old: Option<&Object<[u8]>>, new: &Object<[u8]>) -> Result<bool, ItemError> {
    let Some(old) = old else { return Ok(true) };
    Ok(!images(old.view()?).eq(images(new.view()?)))
}
