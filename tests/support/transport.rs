//! A transport that follows a script: the test chooses the answer to each request, and reads what was requested and
//! when.
//!
//! An [`Answer`] is built from a head and pieces of a body, with a time before each. A [`Scripted`] returns its answers
//! in turn, always the same answer, or the answer that a closure chooses. With paused time (`start_paused = true`)
//! waits are instant.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::client::{Client, Transport, TransportError, TransportErrorKind};
use listwatch::client::{Request, Response, ResponseFuture};
use tokio::time::{Instant, sleep};

use super::{body_of, status};

type Piece = Result<Bytes, TransportError>;

/// Returns the n-th further piece of a body and the time before it, or `None` at the end.
type More = Arc<dyn Fn(u64) -> Option<(Duration, Bytes)> + Send + Sync>;

/// The answer to one request: 200 with an empty body, unless built otherwise.
#[derive(Clone)]
pub struct Answer {
    /// The time before the head.
    after: Duration,
    head: Head,
    pieces: Vec<(Duration, Piece)>,
    end: End,
}

#[derive(Clone)]
enum Head {
    Response(StatusCode, HeaderMap),
    Fails(TransportError),
    Never,
}

#[derive(Clone)]
enum End {
    Closed(Duration),
    Stalled,
    More(More),
}

impl Default for Answer {
    fn default() -> Self {
        Self::of(Head::Response(StatusCode::OK, HeaderMap::new()))
    }
}

impl Answer {
    fn of(head: Head) -> Self {
        Self { after: Duration::ZERO, head, pieces: Vec::new(), end: End::Closed(Duration::ZERO) }
    }

    /// 200 with this body in one piece.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::default().then(Duration::ZERO, body)
    }

    /// 200 with a body in these pieces, such as the frames of a watch.
    pub fn pieces<B: Into<Bytes>>(pieces: impl IntoIterator<Item = B>) -> Self {
        pieces.into_iter().fold(Self::default(), |answer, piece| answer.then(Duration::ZERO, piece))
    }

    /// An error status, with a `Status` of this code as its body.
    pub fn status(code: u16) -> Self {
        Self::ok(body_of("v1", "Status", &status(code))).code(code)
    }

    /// No response: the request ends in this error.
    pub fn fails(kind: TransportErrorKind, message: &str) -> Self {
        Self::of(Head::Fails(TransportError::new(kind, message)))
    }

    /// No response, ever.
    pub fn never() -> Self {
        Self::of(Head::Never)
    }

    /// Sets the status code of the head, whatever the body is.
    pub fn code(mut self, code: u16) -> Self {
        if let Head::Response(status, _) = &mut self.head {
            *status = StatusCode::from_u16(code).unwrap();
        }
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Head::Response(_, headers) = &mut self.head {
            headers.insert(name, value.parse().unwrap());
        }
        self
    }

    /// Sends the head, or fails, after this time.
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// Splits the body into pieces of at most this length.
    pub fn pieces_of(mut self, length: usize) -> Self {
        let split = |(after, piece): (Duration, Piece)| match piece {
            Ok(bytes) => {
                let pieces = bytes.chunks(length).map(|piece| (after, Ok(bytes.slice_ref(piece))));
                pieces.collect::<Vec<_>>()
            }
            error => vec![(after, error)],
        };
        self.pieces = self.pieces.into_iter().flat_map(split).collect();
        self
    }

    /// Sends each piece that was added so far after this time.
    pub fn paced(mut self, time: Duration) -> Self {
        self.pieces.iter_mut().for_each(|(after, _)| *after = time);
        self
    }

    /// Removes the last bytes of the last piece.
    pub fn cut(mut self, bytes: usize) -> Self {
        let (_, piece) = self.pieces.last_mut().expect("there is a body");
        let whole = piece.as_ref().expect("the body does not end in an error");
        *piece = Ok(whole.slice(..whole.len() - bytes));
        self
    }

    /// Sends one more piece, this long after the consumer polls for it.
    pub fn then(mut self, after: Duration, piece: impl Into<Bytes>) -> Self {
        self.pieces.push((after, Ok(piece.into())));
        self
    }

    /// Then the body ends in this error.
    pub fn then_fails(mut self, kind: TransportErrorKind, message: &str) -> Self {
        self.pieces.push((Duration::ZERO, Err(TransportError::new(kind, message))));
        self
    }

    /// Then the connection is reset.
    pub fn then_reset(self) -> Self {
        self.then_fails(TransportErrorKind::Broken, "reset")
    }

    /// Then the body ends, this long after the consumer polls for more.
    pub fn then_ends(mut self, after: Duration) -> Self {
        self.end = End::Closed(after);
        self
    }

    /// Then the body stalls: it neither continues nor ends.
    pub fn then_stalls(mut self) -> Self {
        self.end = End::Stalled;
        self
    }

    /// Then sends the pieces that `more` returns for 0, 1, 2 and so on, each after its time; `None` ends the body.
    pub fn then_each(mut self, more: impl Fn(u64) -> Option<(Duration, Bytes)> + Send + Sync + 'static) -> Self {
        self.end = End::More(Arc::new(more));
        self
    }

    /// Returns the sum of the times before the pieces.
    pub fn body_time(&self) -> Duration {
        self.pieces.iter().map(|(after, _)| *after).sum()
    }
}

/// A request as the transport received it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub at: Instant,
}

impl Asked {
    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }

    /// Returns a parameter of the query, still percent-encoded.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path_and_query.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Chooses the answer to a request; the number counts the requests before it.
type Choose = Box<dyn FnMut(&Asked, usize) -> Answer + Send>;

/// The transport. Its clones share the script and the record.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Mutex<Script>>,
    renews_credentials: bool,
}

struct Script {
    /// The answers to the next requests; then `otherwise` chooses.
    next: VecDeque<Answer>,
    otherwise: Choose,
    asked: Vec<Asked>,
    /// The number of all requests, including those that `forget` removed from `asked`.
    requests: usize,
    bytes_sent: u64,
}

impl Scripted {
    /// Answers in turn. After the last answer each request fails with `the script has ended`, an error that is final.
    pub fn in_turn(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Self::always(Answer::fails(TransportErrorKind::Setup, "the script has ended"));
        script.lock().next.extend(answers);
        script
    }

    /// Sends the same answer to every request.
    pub fn always(answer: Answer) -> Self {
        Self::by(move |_, _| answer.clone())
    }

    /// Sends the answer that a closure chooses, by the request and the number of requests before it.
    pub fn by(choose: impl FnMut(&Asked, usize) -> Answer + Send + 'static) -> Self {
        let script = Script {
            next: VecDeque::new(),
            otherwise: Box::new(choose),
            asked: Vec::new(),
            requests: 0,
            bytes_sent: 0,
        };
        Self { script: Arc::new(Mutex::new(script)), renews_credentials: false }
    }

    /// Sends this answer to each request after the last answer of [`in_turn`](Self::in_turn).
    pub fn afterwards(self, answer: Answer) -> Self {
        self.lock().otherwise = Box::new(move |_, _| answer.clone());
        self
    }

    /// Makes the transport report that it reads its credentials again after a 401.
    pub fn renewing_credentials(mut self) -> Self {
        self.renews_credentials = true;
        self
    }

    /// Returns a client over this transport, with the default retries.
    pub fn client(&self) -> Client {
        Client::new(self.clone())
    }

    /// Returns the requests since the last [`forget`](Self::forget).
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// Returns the path and query of each request in [`asked`](Self::asked).
    pub fn paths(&self) -> Vec<String> {
        self.lock().asked.iter().map(|asked| asked.path_and_query.clone()).collect()
    }

    /// Returns the times between the requests in [`asked`](Self::asked).
    pub fn waits(&self) -> Vec<Duration> {
        self.lock().asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.lock().requests
    }

    /// Returns the number of answers of [`in_turn`](Self::in_turn) that are not sent yet.
    pub fn left(&self) -> usize {
        self.lock().next.len()
    }

    /// Returns the number of body bytes that were sent.
    pub fn bytes_sent(&self) -> u64 {
        self.lock().bytes_sent
    }

    /// Empties the record of requests.
    pub fn forget(&self) {
        self.lock().asked.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn answer(&self, request: Request) -> Answer {
        let asked = Asked { path_and_query: request.path_and_query, headers: request.headers, at: Instant::now() };
        let script = &mut *self.lock();
        let answer = script.next.pop_front().unwrap_or_else(|| (script.otherwise)(&asked, script.requests));
        script.asked.push(asked);
        script.requests += 1;
        answer
    }
}

/// Sleeps, unless the time is zero: `sleep` is not ready at its first poll even then.
async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

impl Transport for Scripted {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let Answer { after, head, pieces, end } = self.answer(request);
        Box::pin(async move {
            wait(after).await;
            let (status, headers) = match head {
                Head::Response(status, headers) => (status, headers),
                Head::Fails(error) => return Err(error),
                Head::Never => std::future::pending().await,
            };
            let this = self.clone();
            let send = move |(after, piece): (Duration, Piece)| {
                let this = this.clone();
                async move {
                    wait(after).await;
                    this.lock().bytes_sent += piece.as_ref().map_or(0, Bytes::len) as u64;
                    piece
                }
            };
            let body = stream::iter(pieces).then(send.clone());
            let body = match end {
                End::Closed(after) => body.chain(wait(after).into_stream().filter_map(async |()| None)).boxed(),
                End::Stalled => body.chain(stream::pending()).boxed(),
                End::More(more) => {
                    let more = (0..).map_while(move |n| more(n)).map(|(after, piece)| (after, Ok(piece)));
                    body.chain(stream::iter(more).then(send)).boxed()
                }
            };
            Ok(Response::new(status, headers, body))
        })
    }

    fn renews_credentials(&self) -> bool {
        self.renews_credentials
    }

    fn server(&self) -> Option<String> {
        Some("scripted:6443".to_owned())
    }
}
