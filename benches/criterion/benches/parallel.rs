//! Decodes a list on two threads. The reference is two processes that decode half of it each.
//!
//! This process serves all lists over loopback. Child processes, started before anything is measured, decode them.
//! `cargo bench -p listwatch-benches --bench parallel` prints the ratios of this run's medians at the end.

use std::env;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write, stdin};
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use futures::{Stream, TryStreamExt};
use k8s_pb::api::core::v1::Pod;
use listwatch::client::{Client, Error, HttpTransport, List, ListParams, ParallelItems, Resource};
use listwatch::{ItemError, ItemRef};
use listwatch_benches::median;
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};
use tokio::runtime::{Builder, Runtime};

const PODS: u32 = 20_000;
const GROUP: &str = "parallel";
const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// What is done with each Pod.
const WORKS: [&str; 2] = ["decode and drop", "box and hand over"];
/// The order in which two threads return the Pods.
const ORDERS: [(&str, Order); 2] = [("in order", Order::Listed), ("as done", Order::Unordered)];

#[derive(Clone, Copy)]
enum Order {
    Listed,
    Unordered,
}

fn on_two_threads<F, O>(list: List<F>, order: Order) -> ParallelItems<O>
where
    F: Fn(ItemRef<'_>) -> Result<O, ItemError> + Send + Sync + 'static,
    O: Send + 'static,
{
    match order {
        Order::Listed => list.parallel(TWO),
        Order::Unordered => list.parallel_unordered(TWO),
    }
}

fn main() {
    let args: Vec<_> = env::args().collect();
    if let [_, child, url, work, how] = &args[..]
        && child == "child"
    {
        return serve(url, work, how);
    }
    let mut criterion = Criterion::default().configure_from_args();
    parallel(&mut criterion);
    criterion.final_summary();
    for work in WORKS {
        for (order, _) in ORDERS {
            let (two, threads) = (format!("{work}, two processes"), format!("{work}, two threads, {order}"));
            if let (Some(two), Some(threads)) = (median(GROUP, &two), median(GROUP, &threads)) {
                println!("{work}, {order}: {:.2} of the speed of two processes", two / threads);
            }
        }
    }
}

fn parallel(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let serve = |pods| {
        let body = Synthesizer::new(&recorded_pods(), pods).expect("recorded Pods synthesize").to_vec();
        let bytes = body.len() as u64;
        let answer = Answer::ok(Body::replay(body)).always();
        (runtime.block_on(Server::start(answer)).expect("a server"), bytes)
    };
    let ((whole, bytes), (half, _)) = (serve(PODS), serve(PODS / 2));

    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Bytes(bytes)).sample_size(20);
    for work in WORKS {
        let mut halves = [(); 2].map(|()| Lister::start(&half.url(), work, "half"));
        group.bench_function(format!("{work}, two processes"), |bencher| {
            bencher.iter_custom(|times| measure(times, &mut halves));
        });
        for (order, _) in ORDERS {
            let mut one = [Lister::start(&whole.url(), work, order)];
            group.bench_function(format!("{work}, two threads, {order}"), |bencher| {
                bencher.iter_custom(|times| measure(times, &mut one));
            });
        }
    }
    group.finish();
}

fn measure(times: u64, listers: &mut [Lister]) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        listers.iter_mut().for_each(Lister::begin);
        assert_eq!(listers.iter_mut().map(Lister::end).sum::<u32>(), PODS);
    }
    start.elapsed()
}

/// A process that lists Pods.
struct Lister {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Lister {
    fn start(url: &str, work: &str, how: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["child", url, work, how]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let input = child.stdin.take().expect("a pipe to stdin");
        let output = BufReader::new(child.stdout.take().expect("a pipe from stdout"));
        Self { child, input, output }
    }

    fn begin(&mut self) {
        writeln!(self.input).expect("the child reads");
    }

    fn end(&mut self) -> u32 {
        let mut pods = String::new();
        self.output.read_line(&mut pods).expect("the child writes");
        pods.trim_end().parse().expect("the number of Pods")
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child ends");
    }
}

/// Runs the child, which lists once for each line on stdin.
fn serve(url: &str, work: &str, how: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = Client::new(HttpTransport::builder(url).build().expect("a transport"));
    let list = || client.list::<Pod>(&Resource::PODS, &ListParams::default());
    let dropping = || client.list_with(&Resource::PODS, &ListParams::default(), decode_and_drop);
    let order = ORDERS.iter().find(|(name, _)| *name == how).map(|(_, order)| *order);
    for line in stdin().lines() {
        line.expect("a line");
        let pods = match (work, order) {
            ("decode and drop", None) => runtime.block_on(count(dropping())),
            ("decode and drop", Some(order)) => runtime.block_on(count(on_two_threads(dropping(), order))),
            (_, None) => runtime.block_on(count(list())),
            (_, Some(order)) => runtime.block_on(count(on_two_threads(list(), order))),
        };
        println!("{pods}");
    }
}

fn decode_and_drop(item: ItemRef<'_>) -> Result<(), ItemError> {
    item.decode::<Pod>().map(|pod| drop(black_box(pod)))
}

async fn count<O>(items: impl Stream<Item = Result<O, Error>>) -> u32 {
    let counted = items.try_fold(0, |pods, pod| {
        drop(black_box(pod));
        futures::future::ready(Ok(pods + 1))
    });
    counted.await.expect("a complete list")
}
