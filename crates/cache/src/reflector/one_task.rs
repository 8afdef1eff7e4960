//! Runs a reflector and a consumer of its changes in one task.
//!
//! A task that wakes another one costs little, but tokio's runtime of several threads wakes a further thread as soon as
//! one poll wakes two tasks. A reflector that reads HTTP/1.1 on the caller's runtime does that for each event: reading
//! wakes the connection, and writing wakes the subscriber. For 2.4 kB of JSON this took half of the CPU of a change.
//! Tokio does the same for a task that wakes itself, so `join!` and `select!` do not help.
//!
//! Here each future has a waker of its own. While the pair is polled, a wake only marks the future, and it is polled
//! next. At any other time the wake reaches the task.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use listwatch::client::Error;

use crate::StoreType;
use crate::reflector::prepared::PreparedReflector;
use crate::sync::{Mutex, lock};

/// The most polls of each future in one poll of the pair. A future that always wakes itself must not block the runtime.
const MAX_TURNS: usize = 4;

/// The waker of one future of the pair.
struct TurnWaker {
    /// True if the future must be polled.
    is_due: AtomicBool,
    task: Arc<SleepingTask>,
}

/// The waker of the task, while it sleeps.
#[derive(Default)]
struct SleepingTask(Mutex<Option<Waker>>);

impl SleepingTask {
    fn set(&self, waker: Option<Waker>) {
        // The replaced waker is dropped without the lock.
        let _replaced = std::mem::replace(&mut *lock(&self.0), waker);
    }

    fn take(&self) -> Option<Waker> {
        lock(&self.0).take()
    }
}

impl TurnWaker {
    fn new(task: &Arc<SleepingTask>) -> Arc<Self> {
        Arc::new(Self { is_due: AtomicBool::new(true), task: Arc::clone(task) })
    }
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        if let Some(waker) = self.task.take() {
            waker.wake();
        }
    }
}

/// Runs both futures in the task that polls this one, and returns the output of the first that ends.
async fn race<O>(first: impl Future<Output = O>, second: impl Future<Output = O>) -> O {
    let task = Arc::<SleepingTask>::default();
    let turns = [TurnWaker::new(&task), TurnWaker::new(&task)];
    let wakers = turns.clone().map(Waker::from);
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        task.set(None);
        for _ in 0..MAX_TURNS {
            let [is_first_due, is_second_due] = &turns;
            if is_first_due.is_due.swap(false, Ordering::SeqCst)
                && let Poll::Ready(output) = first.as_mut().poll(&mut Context::from_waker(&wakers[0]))
            {
                return Poll::Ready(output);
            }
            if is_second_due.is_due.swap(false, Ordering::SeqCst)
                && let Poll::Ready(output) = second.as_mut().poll(&mut Context::from_waker(&wakers[1]))
            {
                return Poll::Ready(output);
            }
            if turns.iter().all(|turn| !turn.is_due.load(Ordering::SeqCst)) {
                break;
            }
        }
        task.set(Some(cx.waker().clone()));
        // A wake before that line found no waker.
        if turns.iter().any(|turn| turn.is_due.load(Ordering::SeqCst))
            && let Some(waker) = task.take()
        {
            waker.wake();
        }
        Poll::Pending
    })
    .await
}

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// As [`run`](Self::run), but also runs a consumer of the changes in the same task, and returns its output when it
    /// ends.
    ///
    /// For small objects that change often it takes less CPU than a task for each: the runtime need not wake a thread
    /// for the consumer. While the consumer computes, the watch is not read.
    ///
    /// ```no_run
    /// use k8s_pb::api::core::v1::Pod;
    /// use listwatch::client::{Client, Error, Resource};
    /// use listwatch_cache::{Change, Reflector};
    ///
    /// # async fn run(client: Client) -> Result<(), Error> {
    /// let reflector = Reflector::<Pod>::new(&client, &Resource::PODS).prepare();
    /// let mut changes = reflector.cache().subscribe().start();
    /// let consumer = async move {
    ///     while let Some(change) = changes.next().await {
    ///         if let Change::Applied { new, .. } = change {
    ///             println!("{}/{}", new.namespace(), new.name());
    ///         }
    ///     }
    /// };
    /// reflector.run_with(consumer).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run). The consumer is then dropped, and does not get [`Change::Ended`](crate::Change::Ended).
    pub async fn run_with<O>(self, consumer: impl Future<Output = O>) -> Result<O, Error> {
        // Boxed, because the future has 16 kB.
        let running = Box::pin(async {
            match self.run().await {
                Err(error) => Err(error),
                // The consumer gets the reason.
                Ok(()) => pending().await,
            }
        });
        race(running, async { Ok(consumer.await) }).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts the wakes of a task.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Wakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// Counts the polls of a future that ends when it is `ended`, and has the waker of the last poll.
    #[derive(Default)]
    struct Probe {
        polls: AtomicUsize,
        waker: Mutex<Option<Waker>>,
        is_ended: AtomicBool,
    }

    impl Probe {
        async fn run(&self, on_poll: impl Fn()) {
            poll_fn(|cx| {
                self.polls.fetch_add(1, Ordering::SeqCst);
                *lock(&self.waker) = Some(cx.waker().clone());
                on_poll();
                if self.is_ended.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }

        fn polls(&self) -> usize {
            self.polls.load(Ordering::SeqCst)
        }

        fn wake(&self) {
            let waker = lock(&self.waker).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    #[test]
    fn a_wake_by_the_other_future_polls_without_waking_the_task() {
        let (counter, reflector, consumer) = (Arc::<Wakes>::default(), Probe::default(), Probe::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut both = pin!(race(reflector.run(|| consumer.wake()), consumer.run(|| {})));
        let mut poll = || both.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        assert_eq!((reflector.polls(), consumer.polls(), counter.count()), (1, 1, 0));
        // An event for the reflector only: one wake of the task, which polls both.
        reflector.wake();
        reflector.wake();
        assert_eq!(counter.count(), 1);
        assert!(poll().is_pending());
        assert_eq!((reflector.polls(), consumer.polls(), counter.count()), (2, 2, 1));
        // A wake for the consumer only does not poll the reflector.
        consumer.wake();
        assert!(poll().is_pending());
        assert_eq!((reflector.polls(), consumer.polls(), counter.count()), (2, 3, 2));
        consumer.is_ended.store(true, Ordering::SeqCst);
        reflector.wake();
        assert!(poll().is_ready());
    }

    #[test]
    fn a_future_that_wakes_itself_returns_to_the_runtime() {
        let (counter, busy) = (Arc::<Wakes>::default(), Probe::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut both = pin!(race(pending(), busy.run(|| busy.wake())));
        for times in 1..4 {
            assert!(both.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!((busy.polls(), counter.count()), (MAX_TURNS * times, times));
        }
    }
}
