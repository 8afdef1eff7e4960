//! Finds the smallest persistent volume that fits a claim in an ordered index: `cargo run --features cache --example
//! volumes`.

mod matching;

use std::error::Error;

use k8s_pb::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, PersistentVolumeStatus,
    VolumeResourceRequirements,
};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};
use prost::Message as _;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = Store::new(StorageFormat::Encoded);
    let volumes = matching::Volumes::new(&store);
    for (name, size, access_modes) in [
        ("small", "500M", &["ReadWriteOnce"][..]),
        ("large", "10Gi", &["ReadWriteOnce"]),
        ("shared", "1Ti", &["ReadWriteOnce", "ReadOnlyMany"]),
    ] {
        let volume = PersistentVolume {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), ..Default::default() }),
            spec: Some(PersistentVolumeSpec {
                capacity: [("storage".to_owned(), Quantity { string: Some(size.to_owned()) })].into(),
                access_modes: access_modes.iter().map(|&mode| mode.to_owned()).collect(),
                ..Default::default()
            }),
            status: Some(PersistentVolumeStatus { phase: Some("Available".to_owned()), ..Default::default() }),
        };
        store.apply(Encoding::Protobuf, &volume.encode_to_vec()).map(drop)?;
    }

    for (size, access_mode) in [("1e3", "ReadWriteOnce"), ("9.5Gi", "ReadWriteOnce"), ("1k", "ReadOnlyMany")] {
        let requests = [("storage".to_owned(), Quantity { string: Some(size.to_owned()) })].into();
        let spec = PersistentVolumeClaimSpec {
            access_modes: vec![access_mode.to_owned()],
            resources: Some(VolumeResourceRequirements { requests, ..Default::default() }),
            ..Default::default()
        };
        let claim = PersistentVolumeClaim { metadata: Some(ObjectMeta::default()), spec: Some(spec), status: None };
        let found = volumes.find(&claim)?;
        println!("{size} {access_mode}: {}", found.as_deref().map_or("none fits", matching::name));
    }
    Ok(())
}
