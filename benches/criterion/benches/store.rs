//! Measures a store's calls in each storage format, with Pods as diverse as in a real cluster (`benches/corpus`) and
//! with uniform Pods, which are 120 recorded ones repeated. `benches/peers` measures resident memory, client-go and
//! kube.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use k8s_pb::api::core::v1::Pod;
use listwatch::path::pod;
use listwatch::{Encoding, Event, ItemError, ItemRef, ListDecoder};
use listwatch_cache::{ObjectKey, StorageFormat, Store, Subscriber};
use listwatch_testserver::{Synthesizer, recorded_pods};

const DIVERSE: u32 = 20_000;
const UNIFORM: u32 = 50_000;
/// The number of calls in a measurement: enough that the processor's caches do not hold the objects that they read.
const CALLS: usize = 1000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let uniform = Synthesizer::new(&recorded_pods(), UNIFORM).expect("a list");
    let corpora: [(_, &dyn Fn() -> Vec<u8>); 2] =
        [("diverse", &|| listwatch_corpus::pods(DIVERSE)), ("uniform", &|| uniform.to_vec())];
    for (corpus, body) in corpora {
        let pods = pods(&body());
        for (name, format) in [("encoded", StorageFormat::Encoded), ("compressed", StorageFormat::Compressed)] {
            bench(&mut criterion, &format!("{corpus}, {name}"), format, &pods);
        }
    }
    bench_subscribers(&mut criterion);
    criterion.final_summary();
}

/// Measures one event, with a subscriber for one node and with subscribers for 5,000 nodes. The goal for the second is
/// at most three times the first.
fn bench_subscribers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store/event");
    let uniform = Synthesizer::new(&recorded_pods(), UNIFORM).expect("a list").to_vec();
    let pods = pods(&uniform);
    for nodes in [1, 5000] {
        let store = Store::<Pod>::new(StorageFormat::Encoded);
        let by_node =
            store.index("node", |object| Ok::<_, ItemError>(pod::NODE_NAME.str(object.item()?)?.map(String::from)));
        let other = (1..nodes).map(|node| format!("other-{node}"));
        let first = ItemRef::new(Encoding::Protobuf, pods.first().expect("a Pod"));
        let named = pod::NODE_NAME.str(first).expect("a Pod").expect("a node");
        let mut subscribers: Vec<_> =
            std::iter::once(named.into_owned()).chain(other).map(|node| by_node.subscribe(node).start()).collect();
        let states = pods.first().map(|pod| [1, 2].map(|version| at_version(pod, version))).expect("a Pod");
        // The store applies each write, because the versions do not compare.
        let mut states = states.iter().cycle();
        group.bench_function(format!("{nodes} subscribers by node"), |bencher| {
            bencher.iter(|| {
                drop(store.apply(Encoding::Protobuf, states.next().expect("a state")).expect("a Pod"));
                black_box(subscribers.first_mut().and_then(Subscriber::try_next).expect("the subscriber is notified"));
            });
        });
    }
    group.finish();
}

/// Returns the Pod with a version that does not compare with others.
fn at_version(pod: &[u8], version: u32) -> Vec<u8> {
    let mut pod = <Pod as prost::Message>::decode(pod).expect("a Pod");
    pod.metadata.get_or_insert_default().resource_version = Some(format!("v{version}"));
    prost::Message::encode_to_vec(&pod)
}

fn pods(mut body: &[u8]) -> Vec<Box<[u8]>> {
    let (mut decoder, mut pods) = (ListDecoder::new(), Vec::new());
    while let Some(event) = decoder.decode(&mut body).expect("a list") {
        if let Event::Item(item) = event {
            pods.push(item.to_box());
        }
    }
    pods
}

fn fill(store: &Store<Pod>, pods: &[Box<[u8]>]) {
    let mut relist = store.begin_relist();
    for pod in pods {
        drop(relist.apply(Encoding::Protobuf, pod).expect("a Pod"));
    }
    relist.commit("1").expect("no other replace");
}

fn bench(criterion: &mut Criterion, name: &str, format: StorageFormat, pods: &[Box<[u8]>]) {
    let store = Store::<Pod>::new(format);
    fill(&store, pods);
    let mut keys: Vec<ObjectKey> = store.snapshot().iter().map(|pod| pod.key()).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    let by_node =
        store.index("node", |object| Ok::<_, ItemError>(pod::NODE_NAME.str(object.item()?)?.map(String::from)));
    println!("{name}: {} bytes held for each of {} Pods", store.memory().total() / pods.len(), pods.len());

    let mut group = criterion.benchmark_group(format!("store/{name}"));
    group.sample_size(10);
    let mut rest = keys.iter().cycle();
    // A caller has usually just made the key: it is in the processor's caches, the objects are not.
    let mut calls = || rest.by_ref().take(CALLS).map(ObjectKey::clone).collect::<Vec<_>>();
    group.throughput(Throughput::Elements(CALLS as u64));
    let mut each = |name: &str, call: &dyn Fn(&ObjectKey)| {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(&mut calls, |keys| keys.iter().for_each(call), BatchSize::PerIteration);
        });
    };
    let get = |key: &ObjectKey| store.get(key).expect("the store has the key");
    each("get", &|key| drop(black_box(get(key))));
    each("get, bytes", &|key| _ = black_box(get(key).encoded().expect("bytes").len()));
    each("get, decode", &|key| drop(black_box(get(key).decode().expect("a Pod"))));

    group.throughput(Throughput::Elements(pods.len() as u64));
    group.bench_function("relist, unchanged", |bencher| bencher.iter(|| fill(&store, pods)));
    group.bench_function("fill", |bencher| bencher.iter(|| fill(&Store::new(format), pods)));
    group.bench_function("iterate", |bencher| {
        bencher.iter(|| store.snapshot().iter().for_each(|pod| _ = black_box(pod.resource_version())));
    });
    group.bench_function("add an index", |bencher| {
        bencher.iter(|| black_box(store.index("uid", |object| Ok::<_, ItemError>([object.uid().to_owned()]))));
    });
    let nodes = by_node.values();
    group.throughput(Throughput::Elements(nodes.len() as u64));
    group.bench_function("count by an index", |bencher| {
        bencher.iter(|| nodes.iter().map(|node| by_node.count(node)).sum::<usize>());
    });
    group.finish();
}
