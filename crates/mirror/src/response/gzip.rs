//! The compression of lists and objects, as the API server compresses them (apiserver `responsewriters/writers.go`).

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{mem, vec};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::body::{BodyError, ResponseBody};

/// A longer body is compressed. As in the API server (`defaultGzipThresholdBytes`).
const THRESHOLD: usize = 128 << 10;

/// As in the API server (`defaultGzipContentEncodingLevel`).
const LEVEL: u32 = 1;

/// Returns true if the reader accepts gzip. As the API server, it reads the first header only, and ignores a coding
/// with a quality.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|coding| coding.trim() == "gzip"))
}

/// Compresses a response if its body is longer than the threshold, for which it waits until that much of the body is
/// produced.
///
/// # Errors
///
/// The error of the body, if it fails before that.
pub(crate) async fn compress_response(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, BodyError> {
    let (mut head, mut body) = response.into_parts();
    let (mut start, mut len) = (Vec::<Bytes>::new(), 0);
    while len <= THRESHOLD {
        let Some(frame) = body.frame().await.transpose()? else {
            return Ok(Response::from_parts(head, start.concat().into()));
        };
        if let Ok(chunk) = frame.into_data() {
            len += chunk.len();
            start.push(chunk);
        }
    }
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::new(LEVEL)));
    Ok(Response::from_parts(head, ResponseBody::new(CompressedBody { start: start.into_iter(), rest: body, encoder })))
}

/// A body, compressed chunk by chunk.
struct CompressedBody {
    /// The chunks that were produced before the response started.
    start: vec::IntoIter<Bytes>,
    rest: ResponseBody,
    /// `None` after the end and after an error.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl CompressedBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self.start.next() {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None => Pin::new(&mut self.rest).poll_frame(cx).map_ok(|frame| frame.into_data().unwrap_or_default()),
        }
    }
}

impl Body for CompressedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Some(mut encoder) = this.encoder.take() else { return Poll::Ready(None) };
        let Poll::Ready(chunk) = this.poll_chunk(cx) else {
            this.encoder = Some(encoder);
            return Poll::Pending;
        };
        let Some(chunk) = chunk.transpose()? else {
            return Poll::Ready(Some(Ok(Frame::data(encoder.finish()?.into()))));
        };
        encoder.write_all(&chunk)?;
        let compressed = mem::take(encoder.get_mut());
        this.encoder = Some(encoder);
        if compressed.is_empty() {
            // The encoder holds back the output of small chunks. Other tasks run before the next chunk.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(compressed.into()))))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use flate2::read::GzDecoder;
    use futures::{StreamExt as _, stream};

    use super::*;

    const CHUNK: usize = 64 << 10;

    /// Returns chunks of this many bytes together, which do not compress well.
    fn chunks(len: usize) -> Vec<Bytes> {
        let mut random = fastrand::Rng::with_seed(7);
        let bytes: Bytes = (0..len).map(|_| random.u8(b'a'..=b'z')).collect();
        bytes.chunks(CHUNK).map(|chunk| bytes.slice_ref(chunk)).collect()
    }

    fn response(chunks: Vec<Bytes>, error: Option<&'static str>) -> Response<ResponseBody> {
        let end = stream::iter(error.map(|error| Err(BodyError::from(error))));
        Response::new(ResponseBody::from_stream(stream::iter(chunks.into_iter().map(Ok)).chain(end)))
    }

    #[test]
    fn reads_the_header_as_the_api_server() {
        for (values, expected) in [
            (&["gzip"][..], true),
            (&["deflate, gzip ,br"], true),
            (&["gzip", "identity"], true),
            (&["identity", "gzip"], false),
            (&["gzip;q=1"], false),
            (&["gzip;q=0"], false),
            (&["GZIP"], false),
            (&["*"], false),
            (&[""], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&headers), expected, "{values:?}");
        }
    }

    #[tokio::test]
    async fn compresses_bodies_over_the_threshold() {
        for (len, is_compressed) in
            [(0, false), (10, false), (THRESHOLD, false), (THRESHOLD + 1, true), (10 * THRESHOLD + 3, true)]
        {
            let plain = chunks(len).concat();
            for body in [response(chunks(len), None), Response::new(ResponseBody::from(plain.clone()))] {
                let (head, body) = compress_response(body).await.unwrap().into_parts();
                let sent = body.collect().await.unwrap().to_bytes();
                let headers = [CONTENT_ENCODING, VARY].map(|name| head.headers.get(name).cloned());
                if !is_compressed {
                    assert_eq!(headers, [None, None], "{len}");
                    assert!(sent == plain, "{len}");
                    continue;
                }
                assert_eq!(headers.map(Option::unwrap), ["gzip", "Accept-Encoding"], "{len}");
                assert!(sent.len() < len, "{len}");
                let (mut decoder, mut decompressed) = (GzDecoder::new(&*sent), Vec::new());
                decoder.read_to_end(&mut decompressed).unwrap();
                assert!(decompressed == plain && decoder.into_inner().is_empty(), "{len}");
            }
        }
    }

    /// It neither holds the whole body nor compresses all of it in one poll.
    #[tokio::test]
    async fn compresses_chunk_by_chunk() {
        let produced = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&produced);
        let endless = stream::repeat(Bytes::from(vec![b'x'; CHUNK])).map(move |chunk| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BodyError>(chunk)
        });
        let mut body = compress_response(Response::new(ResponseBody::from_stream(endless))).await.unwrap().into_body();
        assert_eq!(produced.load(Ordering::Relaxed), 3);
        let mut cx = Context::from_waker(Waker::noop());
        for polls in 1..100 {
            assert!(!matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None | Some(Err(_)))));
            assert!(produced.load(Ordering::Relaxed) <= 3 + polls);
        }
    }

    #[tokio::test]
    async fn passes_errors_on() {
        assert!(compress_response(response(chunks(THRESHOLD), Some("early"))).await.is_err());
        let mut body = compress_response(response(chunks(3 * THRESHOLD), Some("late"))).await.unwrap().into_body();
        let mut sent = Vec::new();
        let error = loop {
            match body.frame().await.unwrap() {
                Ok(frame) => sent.extend_from_slice(frame.data_ref().unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "late");
        assert!(body.frame().await.is_none());
        assert!(GzDecoder::new(&*sent).read_to_end(&mut Vec::new()).is_err());
    }
}
