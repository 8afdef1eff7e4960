//! What views allocate. A separate program, because it counts all allocations of a thread.

use allocation_counter::{AllocationInfo, measure};
use k8s_pb::api::core::v1::Pod;
use listwatch::{Encoding, ItemRef, ListReader};
use listwatch_cache::{StorageFormat, Store};
use listwatch_testserver::recorded_pods;
use listwatch_views::core_v1::PodView;
use prost::Message as _;

fn pods() -> Vec<Box<[u8]>> {
    ListReader::new::<[u8]>(&recorded_pods()[..]).map(|pod| pod.unwrap()).collect()
}

fn six_reads(pod: PodView<'_>) -> usize {
    let (metadata, spec) = (pod.metadata(), pod.spec());
    let images: usize = spec.containers().iter().map(|container| container.image().len()).sum();
    let label = metadata.labels().get("app.kubernetes.io/name").map_or(0, str::len);
    let texts = [metadata.name(), metadata.namespace(), spec.node_name(), pod.status().phase()];
    texts.map(str::len).iter().sum::<usize>() + images + label
}

fn count(run: impl FnOnce()) -> u64 {
    let AllocationInfo { count_total, .. } = measure(run);
    count_total
}

#[test]
fn the_check_and_reads_allocate_nothing() {
    let pods = pods();
    let found = count(|| {
        for pod in &pods {
            let pod = ItemRef::new(Encoding::Protobuf, pod).view::<PodView<'_>>().unwrap();
            assert!(six_reads(pod) > 10);
            assert!(pod.metadata().managed_fields().iter().all(|entry| !entry.fields_v1().unwrap().bytes().is_empty()));
            assert!(pod.spec().volumes().iter().all(|volume| !volume.name().is_empty()));
        }
    });
    assert_eq!(found, 0);
    let decoded = count(|| drop(Pod::decode(&pods[0][..]).unwrap()));
    assert!(decoded > 100, "{decoded}");
}

#[test]
fn a_view_of_a_stored_object_allocates_nothing_unless_it_is_compressed() {
    let pods = pods();
    for (format, expected) in [(StorageFormat::Encoded, 0), (StorageFormat::Compressed, 3)] {
        let store = Store::<[u8]>::new(format);
        let mut relist = store.begin_relist();
        for pod in &pods {
            drop(relist.apply(Encoding::Protobuf, pod).unwrap());
        }
        relist.commit("1").unwrap();
        let object = store.snapshot().iter().next().unwrap();
        let fresh = object.clone();
        assert!(six_reads(object.view().unwrap()) > 10);
        // The bytes of a compressed object are one allocation. The texts of its uid and its version are two more.
        assert_eq!(count(|| assert!(six_reads(fresh.view().unwrap()) > 10)), expected, "{format:?}");
        assert_eq!(count(|| assert!(six_reads(fresh.view().unwrap()) > 10)), 0);
    }
}
