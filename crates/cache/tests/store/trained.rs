//! A store with a dictionary.

use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};

use crate::support::store::Object;

/// A compressed store without objects, of version 0, whose dictionary was trained on these samples.
pub fn trained(samples: impl IntoIterator<Item = Object>) -> Store<[u8]> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    // A file of encoded objects is compressed with a dictionary of its own, for any number of objects from 64 on.
    let encoded = Store::<[u8]>::new(StorageFormat::Encoded);
    let mut list = encoded.begin_relist();
    for mut sample in samples {
        "0".clone_into(&mut sample.meta().resource_version);
        drop(list.apply(Encoding::Protobuf, &sample.to_bytes(Encoding::Protobuf)).unwrap());
    }
    list.commit("0").unwrap();
    encoded.save(&path, "samples").unwrap();
    let store = Store::new(StorageFormat::Compressed);
    store.load(&path, "samples").unwrap();
    assert_eq!(store.len(), encoded.len());
    store.begin_relist().commit("0").unwrap();
    assert_eq!(store.memory().compressed, 0);
    store
}
