//! A list whose items are decoded by several threads.
//!
//! The consumer's polls split the body and copy items into batches. Threads decode the batches, and the consumer receives
//! the results from a window of batches.

use std::collections::VecDeque;
use std::future::Future as _;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::{fmt, io, mem, thread, vec};

use futures_core::Stream;
use tokio::sync::oneshot;

use super::run::State;
use super::{List, ListSummary};
use crate::client::error::{Error, ErrorKind};
use crate::client::progress::Progress;
use crate::client::transport::{TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind, ItemError};
use crate::meta::TypeMeta;
use crate::object::ItemRef;
use crate::sync::{Mutex, lock};
use crate::wire::Encoding;

/// The size in bytes at which a batch is sent to a thread.
const BATCH: usize = 256 << 10;

/// The number of batches in the window for each thread.
const BATCHES_PER_THREAD: usize = 2;

impl<F, O, E> List<F>
where
    F: Fn(ItemRef<'_>) -> Result<O, E> + Send + Sync + 'static,
    O: Send + 'static,
    E: Into<ItemError> + 'static,
{
    /// Returns the items as a stream, decoded by several threads, in the order of the list.
    ///
    /// Threads pay where items need work: Pods that are decoded, or a closure that compresses them. For the bytes alone
    /// the list itself is faster. The consumer's thread frees the items, which is slow with glibc's allocator: a list of
    /// Pods that are decoded and dropped is no faster than without threads. So the closure of
    /// [`list_with`](crate::client::Client::list_with) should return only the data that the consumer needs.
    ///
    /// Several threads call the closure at once. So pass a function, or assign the closure to a variable first: for a closure
    /// within the call of `list_with`, Rust infers `FnMut`.
    ///
    /// ```no_run
    /// use std::thread::available_parallelism;
    ///
    /// use futures::TryStreamExt;
    /// use k8s_pb::api::core::v1::Pod;
    /// use listwatch::client::{Client, ListParams, Resource};
    /// use listwatch::{ItemError, ItemRef};
    ///
    /// fn containers(item: ItemRef<'_>) -> Result<usize, ItemError> {
    ///     Ok(item.decode::<Pod>()?.spec.unwrap_or_default().containers.len())
    /// }
    ///
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let pods = client.list_with(&Resource::PODS, &ListParams::default(), containers);
    /// let counts = pods.parallel_unordered(available_parallelism()?);
    /// let sum = counts.try_fold(0, |sum, count| async move { Ok(sum + count) }).await?;
    /// println!("{sum} containers");
    /// # Ok(())
    /// # }
    /// ```
    pub fn parallel(self, threads: NonZeroUsize) -> ParallelItems<O> {
        ParallelItems::new(self, threads, true)
    }

    /// Returns the items as a stream, decoded by several threads, in batches of neighbours as soon as each is decoded: no batch
    /// waits for a slower one.
    pub fn parallel_unordered(self, threads: NonZeroUsize) -> ParallelItems<O> {
        ParallelItems::new(self, threads, false)
    }
}

/// The items of a list that several threads decode, as a stream that ends after the last item or after an error.
///
/// For each thread up to two batches wait for the consumer, each of 256 KiB or of the items decoded from that, in addition to the
/// batch that is being delivered. An error follows all items before it in the list; in an unordered stream the error of an item
/// may precede some of them. A panic in the closure resumes in the consumer.
///
/// No thread starts before the stream is polled. Dropping the stream closes the connection, or resets the HTTP/2 stream, and its
/// threads end after their current item.
#[must_use = "nothing is sent until it is polled"]
pub struct ParallelItems<O> {
    items: List<Gather>,
    /// The batch that is gathered for the next thread.
    batch: Arc<Mutex<Batch>>,
    /// Batches to reuse: freeing this much memory each time is slow with the system's allocator.
    spare: Vec<Batch>,
    /// The end of reading, or its error.
    read: Option<Result<(), Error>>,
    pool: Pool<O>,
    is_ordered: bool,
    /// The results that the threads have not returned yet.
    window: VecDeque<oneshot::Receiver<thread::Result<Decoded<O>>>>,
    /// The rest of the batch that is being delivered.
    ready: vec::IntoIter<O>,
    /// The error that follows that batch.
    failed: Option<DecodeError>,
    delivered: u64,
    /// The number of items that the threads skipped.
    skipped: u64,
}

/// Puts an item into the batch.
type Gather = Box<dyn FnMut(ItemRef<'_>) -> Result<(), ItemError> + Send>;

impl<O: Send + 'static> ParallelItems<O> {
    fn new<F, E>(list: List<F>, threads: NonZeroUsize, is_ordered: bool) -> Self
    where
        F: Fn(ItemRef<'_>) -> Result<O, E> + Send + Sync + 'static,
        E: Into<ItemError> + 'static,
    {
        let List { pages, decode: decode_item } = list;
        let plan = &pages.run.listing.plan;
        let skips = plan.skips_item_errors;
        let reports = plan.on_skip.is_some();
        let decode: Arc<Decode<O>> = Arc::new(move |batch: Batch, is_wanted: &dyn Fn() -> bool| {
            batch.decode(&decode_item, skips, reports, is_wanted)
        });
        let batch = Arc::<Mutex<Batch>>::default();
        let gathered = Arc::clone(&batch);
        let gather: Gather = Box::new(move |item| {
            lock(&gathered).push(item);
            Ok(())
        });
        Self {
            items: List { pages, decode: gather },
            batch,
            spare: Vec::new(),
            read: None,
            pool: Pool { threads: threads.get(), jobs: None, decode },
            is_ordered,
            window: VecDeque::new(),
            ready: Vec::new().into_iter(),
            failed: None,
            delivered: 0,
            skipped: 0,
        }
    }

    /// Returns the summary of the complete list; `None` before its end and after an error.
    #[must_use]
    pub fn summary(&self) -> Option<ListSummary> {
        let is_out = self.window.is_empty() && self.ready.len() == 0 && self.failed.is_none();
        let summary = self.items.summary().filter(|_| is_out)?;
        let (items, skipped) = (summary.items - self.skipped, summary.skipped + self.skipped);
        Some(ListSummary { items, skipped, ..summary.clone() })
    }

    /// Returns a handle to the progress of reading, which is ahead of the delivered items.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.items.progress()
    }

    /// Reads until the window is full, or no more bytes have arrived.
    fn read(&mut self, cx: &mut Context<'_>) {
        while self.read.is_none() && self.window.len() < self.pool.threads.saturating_mul(BATCHES_PER_THREAD) {
            let List { pages, decode } = &mut self.items;
            let next = pages.advance(cx, decode);
            let mut batch = lock(&self.batch);
            let is_due = match next {
                Poll::Ready(Ok(Some(()))) => batch.bytes.len() >= BATCH,
                // An incomplete batch is sent only if the threads are idle.
                Poll::Pending => self.window.is_empty(),
                Poll::Ready(Ok(None) | Err(_)) => true,
            };
            if is_due && !batch.items.is_empty() {
                let next = self.spare.pop().unwrap_or_default();
                match self.pool.decode(mem::replace(&mut *batch, next)) {
                    Ok(owed) => self.window.push_back(owed),
                    Err(error) => {
                        drop(batch);
                        return self.fail(error);
                    }
                }
            }
            match next {
                Poll::Ready(Ok(Some(()))) => {}
                Poll::Ready(Ok(None)) => self.read = Some(Ok(())),
                Poll::Ready(Err(error)) => self.read = Some(Err(error)),
                Poll::Pending => return,
            }
        }
    }

    /// Returns the next decoded batch, or `None` if the window is empty.
    fn next_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Decoded<O>>> {
        let candidates = if self.is_ordered { 1 } else { self.window.len() };
        for (at, owed) in self.window.iter_mut().enumerate().take(candidates) {
            let Poll::Ready(decoded) = Pin::new(owed).poll(cx) else { continue };
            self.window.remove(at);
            let panic = match decoded {
                Ok(Ok(decoded)) => return Poll::Ready(Some(decoded)),
                Ok(Err(panic)) => panic,
                Err(dropped) => Box::new(dropped),
            };
            // The items of the batch are lost.
            self.fail(ErrorKind::Decode(DecodeError::new(DecodeErrorKind::Poisoned, 0, None, 0)).into());
            resume_unwind(panic);
        }
        if self.window.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Ends the stream in this error, without the items of the window.
    fn fail(&mut self, error: Error) {
        self.items.pages.state = State::Failed;
        self.window.clear();
        self.read = Some(Err(error));
    }
}

impl<O: Send + 'static> Stream for ParallelItems<O> {
    type Item = Result<O, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            // Gives the threads work first, because the consumer may be slow to poll again.
            this.read(cx);
            if let Some(item) = this.ready.next() {
                this.delivered += 1;
                return Poll::Ready(Some(Ok(item)));
            }
            if let Some(failed) = this.failed.take() {
                let audit_id = this.items.pages.run.listing.summary.audit_id.clone();
                this.fail(Error::from(ErrorKind::Decode(failed)).with_audit_id(audit_id));
            }
            if let Some(Decoded { mut batch, items, skipped, reports, failed }) = ready!(this.next_batch(cx)) {
                batch.clear();
                this.spare.push(batch);
                this.ready = items.into_iter();
                this.skipped += skipped;
                let plan = &mut this.items.pages.run.listing.plan;
                for error in &reports {
                    plan.report(error);
                }
                this.failed = failed;
                continue;
            }
            let Some(read) = &mut this.read else { return Poll::Pending };
            this.pool.jobs = None;
            let Err(error) = mem::replace(read, Ok(())) else { return Poll::Ready(None) };
            return Poll::Ready(Some(Err(error.with_delivered(this.delivered))));
        }
    }
}

/// No field is pinned.
impl<O> Unpin for ParallelItems<O> {}

impl<O> fmt::Debug for ParallelItems<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParallelItems").field("items", &self.items).finish_non_exhaustive()
    }
}

/// Items for a thread to decode.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    items: Vec<BatchItem>,
}

/// An item of a batch, whose bytes end at `end` and begin at the end of the previous item.
struct BatchItem {
    end: usize,
    encoding: Encoding,
    type_meta: Arc<TypeMeta>,
    index: u64,
    offset: u64,
    decoded_size: u64,
}

/// The decoded items of a batch, up to the first item that failed.
struct Decoded<O> {
    batch: Batch,
    items: Vec<O>,
    skipped: u64,
    /// The errors of the skipped items, if the list reports them.
    reports: Vec<DecodeError>,
    failed: Option<DecodeError>,
}

impl Batch {
    fn push(&mut self, item: ItemRef<'_>) {
        if self.items.is_empty() {
            self.bytes.reserve(BATCH + item.bytes().len());
        }
        self.bytes.extend_from_slice(item.bytes());
        let type_meta = match self.items.last() {
            Some(before) if *before.type_meta == *item.type_meta() => Arc::clone(&before.type_meta),
            _ => Arc::new(item.type_meta().clone()),
        };
        let end = self.bytes.len();
        self.items.push(BatchItem {
            end,
            encoding: item.encoding(),
            type_meta,
            index: item.index(),
            offset: item.offset(),
            decoded_size: item.decoded_size(),
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        if self.bytes.capacity() > 2 * BATCH {
            // The batch had a large item.
            self.bytes = Vec::new();
        }
    }

    /// Decodes the items, and stops when the consumer has dropped the stream.
    fn decode<O, E: Into<ItemError>>(
        self,
        own: &impl Fn(ItemRef<'_>) -> Result<O, E>,
        skips: bool,
        reports: bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Decoded<O> {
        let (mut items, mut skipped, mut failed) = (Vec::with_capacity(self.items.len()), 0, None);
        let mut reported = Vec::new();
        let mut rest = &self.bytes[..];
        let mut start = 0;
        for &BatchItem { end, encoding, ref type_meta, index, offset, decoded_size } in &self.items {
            if !is_wanted() {
                break;
            }
            let (bytes, after) = rest.split_at(end - start);
            (rest, start) = (after, end);
            let item = ItemRef::new(encoding, bytes).with_type_meta(type_meta).at(index, offset, decoded_size);
            let error = |error: E| DecodeError::new(DecodeErrorKind::Item(error.into()), offset, Some(index), 0);
            match own(item) {
                Ok(item) => items.push(item),
                Err(refused) if skips => {
                    skipped += 1;
                    reported.extend(reports.then(|| error(refused)));
                }
                Err(refused) => {
                    failed = Some(error(refused));
                    break;
                }
            }
        }
        Decoded { batch: self, items, skipped, reports: reported, failed }
    }
}

/// Threads that decode batches. They start with the first batch.
struct Pool<O> {
    threads: usize,
    jobs: Option<mpsc::Sender<Job<O>>>,
    decode: Arc<Decode<O>>,
}

type Decode<O> = dyn Fn(Batch, &dyn Fn() -> bool) -> Decoded<O> + Send + Sync;

struct Job<O> {
    batch: Batch,
    reply: oneshot::Sender<thread::Result<Decoded<O>>>,
}

impl<O: Send + 'static> Pool<O> {
    fn decode(&mut self, batch: Batch) -> Result<oneshot::Receiver<thread::Result<Decoded<O>>>, Error> {
        let jobs = if let Some(jobs) = &self.jobs {
            jobs
        } else {
            let jobs = self.start().map_err(|error| {
                TransportError::new(TransportErrorKind::Setup, format!("cannot start a decoding thread: {error}"))
            })?;
            self.jobs.insert(jobs)
        };
        let (reply, owed) = oneshot::channel();
        // If the threads have ended, the reply is dropped, and the window reports that.
        drop(jobs.send(Job { batch, reply }));
        Ok(owed)
    }

    fn start(&self) -> io::Result<mpsc::Sender<Job<O>>> {
        let (sender, jobs) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..self.threads {
            let (jobs, decode) = (Arc::clone(&jobs), Arc::clone(&self.decode));
            thread::Builder::new().name("listwatch-decode".to_owned()).spawn(move || work(&jobs, &*decode))?;
        }
        Ok(sender)
    }
}

/// Decodes batches until there are no more jobs.
fn work<O>(jobs: &Mutex<mpsc::Receiver<Job<O>>>, decode: &Decode<O>) {
    loop {
        // The lock is released before decoding.
        let job = lock(jobs).recv();
        let Ok(Job { batch, reply }) = job else { return };
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(batch, &|| !reply.is_closed())));
        // The consumer may have dropped the stream.
        drop(reply.send(decoded));
    }
}
