//! Many clients share few threads, which end with them.

use std::fs::{read_dir, read_to_string};
use std::thread::available_parallelism;

use listwatch::client::{ListParams, Resource};
use listwatch_testserver::{Answer, Body};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::{DEADLINE, Whole, alone, client, serve};

/// The number of threads of the process that read connections.
fn io_threads() -> usize {
    let threads = read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let names = threads.filter_map(|thread| read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "listwatch-io").count()
}

#[test]
fn two_hundred_clients_read_on_a_thread_for_each_core() {
    alone(async {
        let whole = Whole::small();
        let server = serve(Answer::ok(Body::replay(whole.body.clone()))).await;
        let none = async || {
            while io_threads() > 0 {
                yield_now().await;
            }
        };
        timeout(DEADLINE, none()).await.expect("the threads of other parts end");
        let clients: Vec<_> = (0..200).map(|_| client(&server.url(), false)).collect();
        for client in &clients {
            let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
            assert_eq!(list.into_vec().await.unwrap().0.len(), whole.items.len());
        }
        assert_eq!(io_threads(), available_parallelism().unwrap().get());
        drop(clients);
        timeout(DEADLINE, none()).await.expect("the threads end with the clients");
    });
}
