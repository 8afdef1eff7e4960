//! The iterator, the stream and the codec return the same items, one at a time, and then the end of the list or an
//! error.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use k8s_pb::api::core::v1::Pod;
use listwatch::{DecodeErrorKind, Event, ItemError, Limit, Limits, ListDecoder, ListError, ListReader, Tolerant};

use crate::support::{body_of, chain, cut, fixture, len_field, list_decoder, reference};

/// A reader that returns scripted chunks and errors.
struct Script(VecDeque<Result<Vec<u8>, io::ErrorKind>>);

impl Script {
    fn new(body: &[u8], lengths: &[usize]) -> Self {
        Self(cut(body, lengths).map(|chunk| Ok(chunk.to_vec())).collect())
    }
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.pop_front() {
            None => Ok(0),
            Some(Err(kind)) => Err(kind.into()),
            Some(Ok(chunk)) => {
                buffer[..chunk.len()].copy_from_slice(&chunk);
                Ok(chunk.len())
            }
        }
    }
}

#[test]
fn the_reader_returns_every_item_and_then_the_end() {
    for (name, body) in crate::support::lists() {
        let expected = reference(&body).unwrap();
        for lengths in [&[7][..], &[4096], &[60_000], &[1, 5000, 30]] {
            let mut reader = ListReader::new::<[u8]>(Script::new(&body, lengths));
            assert!(reader.end().is_none());
            let items: Vec<_> = reader.by_ref().map(Result::unwrap).map(Vec::from).collect();
            assert_eq!(items, expected.items, "{name} in {lengths:?}");
            let end = reader.end().unwrap();
            assert_eq!((end.items, end.bytes), (items.len() as u64, body.len() as u64));
            assert_eq!(end.list_meta, expected.list_meta);
            assert!(reader.next().is_none());
        }
    }
}

#[test]
fn retries_an_interrupted_read_and_returns_other_read_errors() {
    let body = fixture("configmaps.pb");
    let mut script = Script::new(&body, &[1000]);
    script.0.insert(1, Err(io::ErrorKind::Interrupted));
    assert_eq!(ListReader::new::<[u8]>(script).flatten().count(), 13);

    let mut script = Script::new(&body, &[1000]);
    script.0.insert(2, Err(io::ErrorKind::ConnectionReset));
    let mut reader = ListReader::new::<[u8]>(script);
    let delivered = reader.by_ref().take_while(Result::is_ok).count();
    assert_eq!(delivered, reference_items_in(&body[..2000]));
    assert!(reader.next().is_none() && reader.end().is_none(), "fused, and not complete");
}

fn reference_items_in(prefix: &[u8]) -> usize {
    usize::try_from(crate::support::decode(Limits::default(), [prefix]).unwrap_err().items()).unwrap()
}

#[test]
fn a_truncated_body_is_an_error_in_every_adapter() {
    let body = &fixture("configmaps.pb")[..3000];
    let mut reader = ListReader::new::<[u8]>(body);
    let last = reader.by_ref().last().unwrap();
    assert!(matches!(&last, Err(ListError::Decode(error)) if error.is_incomplete()), "{last:?}");
    assert!(reader.end().is_none());
}

#[test]
fn a_loop_may_break_and_resume() {
    let body = &fixture("configmaps.pb")[..];
    let mut reader = ListReader::new::<[u8]>(body);
    for (seen, item) in reader.by_ref().enumerate() {
        item.unwrap();
        if seen == 2 {
            break;
        }
    }
    assert!(reader.end().is_none() && reader.decoder().items() == 3);
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 10);
    assert_eq!(reader.end().unwrap().items, 13);
}

#[test]
fn text_that_is_not_utf8_is_decoded_with_replacements_where_the_kind_is_known() {
    let cut = len_field(1, &len_field(2, b"a\xe2\x82"));
    for (kind, expected) in [("ConfigMapList", Some("a\u{fffd}\u{fffd}")), ("WidgetList", None)] {
        let body = body_of("v1", kind, &len_field(2, &cut));
        let item = ListReader::new::<Nested>(&body[..]).next().unwrap();
        let name = item.ok().and_then(|item| item.inner).map(|inner| inner.name);
        assert_eq!(name.as_deref(), expected);
    }
}

#[test]
fn a_list_of_another_kind_is_an_error_whatever_is_skipped() {
    use k8s_pb::api::core::v1::{ConfigMap, Secret};

    let (body, empty) = (fixture("configmaps.pb"), body_of("v1", "ConfigMapList", &len_field(1, b"")));
    for body in [&body[..], &empty] {
        let mut plain = ListReader::new::<Secret>(body).skip_item_errors(true);
        let mut tolerant = ListReader::new::<Tolerant<Secret>>(body);
        let errors = [plain.next().unwrap().unwrap_err(), tolerant.next().unwrap().unwrap_err()];
        for error in errors {
            let text = error.to_string();
            let expected =
                "unexpected kind: the list has objects of the kind ConfigMap of v1, the type reads a Secret of v1, ";
            assert!(text.starts_with(expected) && text.ends_with(", 0 items delivered"), "{text}");
        }
        assert!(plain.next().is_none() && plain.end().is_none());
    }
    let decoded = ListReader::with(&body[..], |item| item.decode::<Secret>()).next().unwrap().unwrap_err();
    let expected = "unexpected kind: the object is a ConfigMap of v1, the type reads a Secret of v1";
    assert!(chain(&decoded).ends_with(expected), "{}", chain(&decoded));
    assert_eq!(ListReader::with(&body[..], |item| item.decode::<ConfigMap>()).flatten().count(), 13);
}

#[test]
fn the_reader_returns_its_source() {
    let body = &fixture("configmaps.pb")[..];
    let mut reader = ListReader::new::<[u8]>(io::Cursor::new(body));
    assert_eq!(reader.get_ref().position(), 0);
    assert!(format!("{reader:?}").starts_with("ListReader { read: Cursor"), "{reader:?}");
    assert_eq!(reader.by_ref().count(), 13);
    assert_eq!(reader.into_inner().position(), body.len() as u64);
}

#[test]
fn items_that_prost_refuses_fail_or_are_skipped_and_counted() {
    let bad = [len_field(1, b"\x10\x01"), b"\x0a\x02\x0a".to_vec()];
    let good = len_field(1, &len_field(2, b"name"));
    let deep = (0..200).fold(Vec::new(), |inner, _| len_field(1, &inner));
    for bad in [&bad[0], &bad[1], &deep] {
        let raw = [&good, bad, &good].map(|item| len_field(2, item)).concat();
        // A recursive message stands for types that nest, such as JSONSchemaProps.
        let body = body_of("v1", "ConfigMapList", &raw);
        let error = ListReader::new::<Nested>(&body[..]).find_map(Result::err).unwrap();
        let ListError::Decode(error) = error else { panic!("{error}") };
        assert!(matches!(error.kind(), DecodeErrorKind::Item(ItemError::Protobuf(_))), "{error}");
        // The second item follows the first and its header of 2 bytes; 4 bytes follow `raw`.
        let raw_start = body.len() - 4 - raw.len();
        assert_eq!((error.index(), error.items()), (Some(1), 1));
        assert_eq!(error.offset(), (raw_start + 2 + good.len()) as u64);

        let (report, skipped) = mpsc::channel();
        let mut reader = ListReader::new::<Nested>(&body[..])
            .skip_item_errors(true)
            .on_skip(move |error| report.send(error.to_string()).unwrap());
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), 2);
        assert_eq!(skipped.try_iter().collect::<Vec<_>>(), [error.to_string()]);
        let end = reader.end().unwrap();
        assert_eq!((end.items, end.skipped), (2, 1));
        assert_eq!(ListReader::new::<[u8]>(&body[..]).flatten().count(), 3, "raw items pass");
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nested {
    #[prost(message, optional, boxed, tag = "1")]
    inner: Option<Box<Nested>>,
    #[prost(string, tag = "2")]
    name: String,
}

#[test]
fn adapters_apply_limits() {
    let body = fixture("configmaps.pb");
    let error = ListReader::new::<[u8]>(&body[..]).limits(Limits::default().items(5)).find_map(Result::err);
    let Some(ListError::Decode(error)) = error else { panic!("{error:?}") };
    assert!(matches!(error.kind(), DecodeErrorKind::Limit { .. }) && error.items() == 5, "{error}");
}

#[test]
fn reports_oversized_items_that_are_skipped() {
    for body in [fixture("configmaps.pb"), fixture("widgets-page-1.json")] {
        let mut sizes: Vec<u64> = Vec::new();
        let mut whole = list_decoder(Limits::default());
        let _ = whole.feed(&mut &body[..], |event| -> ControlFlow<()> {
            if let Event::Item(item) = event {
                sizes.push(item.bytes().len() as u64);
            }
            ControlFlow::Continue(())
        });
        let max = sizes.iter().max().unwrap() - 1;
        let over = sizes.iter().position(|size| *size > max).unwrap() as u64;
        let limits = Limits::default().item_size(max);
        for lengths in [&[1][..], &[4096]] {
            let (report, skipped) = mpsc::channel();
            let reader = ListReader::new::<[u8]>(Script::new(&body, lengths)).skip_item_errors(true).limits(limits);
            let reader = reader.accept_json();
            let mut reader = reader.on_skip(move |error| report.send(error.clone()).unwrap());
            let delivered = reader.by_ref().map(Result::unwrap).count() as u64;
            let first_skipped = skipped.try_recv().unwrap();
            assert_eq!(first_skipped.limit(), Some(Limit::ItemSize));
            let DecodeErrorKind::Limit { size, max: limit, .. } = *first_skipped.kind() else {
                panic!("{first_skipped}")
            };
            assert_eq!((size, limit), (max + 1, max));
            assert_eq!(first_skipped.index(), Some(over));
            let end = reader.end().unwrap();
            assert_eq!((end.items, end.skipped), (delivered, 1 + skipped.try_iter().count() as u64));
        }
    }
}

#[test]
fn refuses_wrapper_types() {
    fn refuses<M: prost::Message + Default + 'static>(body: &[u8]) {
        let error = ListReader::new::<M>(body).find_map(Result::err);
        let Some(ListError::Decode(error)) = error else { panic!("{error:?}") };
        assert!(matches!(error.kind(), DecodeErrorKind::Item(ItemError::WrapperType(_))), "{error}");
    }
    let body = fixture("configmaps.pb");
    refuses::<()>(&body);
    refuses::<bool>(&body);
    refuses::<u32>(&body);
    refuses::<u64>(&body);
    refuses::<i32>(&body);
    refuses::<i64>(&body);
    refuses::<f32>(&body);
    refuses::<f64>(&body);
    refuses::<String>(&body);
    refuses::<Vec<u8>>(&body);
    refuses::<prost::bytes::Bytes>(&body);
    refuses::<Box<String>>(&body);
    refuses::<Box<Box<u32>>>(&body);
}

#[test]
fn a_closure_may_return_its_own_error() {
    let body = fixture("configmaps.pb");
    let reader = ListReader::with(&body[..], |item| match item.index() {
        4 => Err(ItemError::other("no fours")),
        index => Ok(index),
    });
    let (ok, err): (Vec<_>, Vec<_>) = reader.partition(Result::is_ok);
    assert_eq!(ok.len(), 4);
    let error = crate::support::chain(err[0].as_ref().unwrap_err());
    assert!(
        error.starts_with("cannot read item 4, at byte ") && error.ends_with(", 4 items delivered: no fours"),
        "{error}"
    );
}

#[test]
fn a_panic_in_a_callback_poisons_the_decoder() {
    let body = fixture("configmaps.pb");
    let mut decoder = ListDecoder::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        decoder.feed(&mut &body[..], |event| -> ControlFlow<()> {
            assert!(!matches!(event, Event::Item(item) if item.index() == 2), "the third item");
            ControlFlow::Continue(())
        })
    }));
    assert!(panicked.is_err());
    assert!(matches!(decoder.finish().unwrap_err().kind(), DecodeErrorKind::Poisoned));
    assert!(matches!(decoder.decode(&mut &body[..]).unwrap_err().kind(), DecodeErrorKind::Poisoned));

    let mut reader = ListReader::with(&body[..], |item| {
        assert!(item.index() != 2, "the third item");
        Ok::<_, ItemError>(())
    });
    assert!(catch_unwind(AssertUnwindSafe(|| reader.by_ref().count())).is_err());
    let next = reader.next();
    assert!(matches!(&next, Some(Err(ListError::Decode(error))) if matches!(error.kind(), DecodeErrorKind::Poisoned)));
    assert!(reader.next().is_none() && reader.end().is_none());
}

#[test]
fn feed_leaves_the_rest_of_a_chunk_after_a_break() {
    for (name, chunk, items) in
        [("configmaps.pb", 1000, 13), ("configmaps.pb", 1 << 20, 13), ("widgets-page-1.json", 2000, 20)]
    {
        let body = fixture(name);
        let mut decoder = list_decoder(Limits::default());
        let mut indexes = Vec::new();
        for mut chunk in body.chunks(chunk) {
            while !chunk.is_empty() {
                let flow = decoder.feed(&mut chunk, |event| match event {
                    Event::Item(item) => ControlFlow::Break(item.index()),
                    _ => ControlFlow::Continue(()),
                });
                match flow.unwrap() {
                    ControlFlow::Break(index) => indexes.push(index),
                    ControlFlow::Continue(()) => assert!(chunk.is_empty(), "{name}"),
                }
            }
        }
        assert_eq!((decoder.finish().unwrap().items, indexes), (items, (0..items).collect()), "{name}");
    }
}

#[test]
fn typed_pods_equal_pods_of_the_full_body() {
    use k8s_pb::api::core::v1::PodList;
    use prost::Message as _;

    let body = fixture("pods.pb");
    let unknown = crate::support::Unknown::decode(&body[4..]).unwrap();
    let expected = PodList::decode(&unknown.raw[..]).unwrap().items;
    let pods: Vec<Pod> = ListReader::new::<Pod>(&body[..]).map(|pod| *pod.unwrap()).collect();
    assert!(pods == expected);
}

#[cfg(feature = "async")]
mod asynchronous {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use futures::executor::block_on;
    use futures::stream::FusedStream as _;
    use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, stream};
    use listwatch::ListStream;

    use super::*;

    /// Three of the recorded ConfigMaps are longer than this.
    const LONG: usize = 330;

    /// A stream of chunks with a `Pending` before each; counts the chunks consumed.
    struct Chunks {
        chunks: VecDeque<Result<Bytes, io::ErrorKind>>,
        ready: bool,
        consumed: Arc<AtomicUsize>,
    }

    impl Chunks {
        fn new(body: &[u8], lengths: &[usize]) -> Self {
            let chunks = cut(body, lengths).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            Self { chunks, ready: false, consumed: Arc::default() }
        }
    }

    impl Stream for Chunks {
        type Item = io::Result<Bytes>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.ready = !self.ready;
            if self.ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.consumed.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(self.chunks.pop_front().map(|chunk| chunk.map_err(io::Error::from)))
        }
    }

    #[test]
    fn a_stream_returns_the_items_of_the_reader() {
        for (name, body) in crate::support::lists() {
            if body.len() > 200_000 {
                continue;
            }
            let expected = reference(&body).unwrap();
            for lengths in [&[7][..], &[4096], &[1, 5000, 30]] {
                let mut items = ListStream::new::<[u8]>(Chunks::new(&body, lengths));
                let streamed: Vec<_> = block_on(items.by_ref().try_collect()).unwrap();
                assert_eq!(streamed.into_iter().map(Vec::from).collect::<Vec<_>>(), expected.items, "{name}");
                assert_eq!(items.end().unwrap().list_meta, expected.list_meta);
                assert!(block_on(items.next()).is_none());
            }
        }
    }

    #[test]
    fn a_body_without_items_gives_other_tasks_turns() {
        for piece in [&b""[..], &[b' '; 4096]] {
            let endless = stream::repeat_with(|| io::Result::Ok(Bytes::from_static(piece)));
            let mut items = ListStream::new::<[u8]>(endless).accept_json();
            assert!(items.next().now_or_never().is_none());
        }
    }

    #[test]
    fn each_poll_returns_one_item_and_consumes_a_chunk_only_when_needed() {
        let body = fixture("configmaps.pb");
        let chunks = Chunks::new(&body, &[2000]);
        let consumed = Arc::clone(&chunks.consumed);
        let mut items = ListStream::new::<[u8]>(chunks);
        let first_chunk = reference_items_in(&body[..2000]);
        assert!(first_chunk > 3);
        for _ in 0..first_chunk {
            block_on(items.next()).unwrap().unwrap();
            assert_eq!(consumed.load(Ordering::Relaxed), 1);
        }
        block_on(items.next()).unwrap().unwrap();
        assert_eq!(consumed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_dropped_future_loses_nothing() {
        let body = fixture("configmaps.pb");
        let mut items = ListStream::new::<[u8]>(Chunks::new(&body, &[100]));
        let mut received = 0;
        loop {
            // Every second poll is pending, and its future is dropped here.
            match items.next().now_or_never() {
                None => {}
                Some(Some(item)) => {
                    item.unwrap();
                    received += 1;
                }
                Some(None) => break,
            }
        }
        assert_eq!((received, items.end().unwrap().items), (13, 13));
    }

    #[test]
    fn transport_errors_and_decode_errors_are_distinct() {
        let body = fixture("configmaps.pb");
        let mut broken = Chunks::new(&body, &[1000]);
        broken.chunks[2] = Err(io::ErrorKind::ConnectionReset);
        let mut items = ListStream::new::<[u8]>(broken);
        let results: Vec<_> = block_on(items.by_ref().collect());
        let (last, delivered) = results.split_last().unwrap();
        assert!(matches!(last, Err(ListError::Transport(error)) if error.kind() == io::ErrorKind::ConnectionReset));
        assert!(delivered.len() == reference_items_in(&body[..2000]) && delivered.iter().all(Result::is_ok));
        assert!(items.end().is_none());

        let truncated = Chunks::new(&body[..2000], &[1000]);
        let mut items = ListStream::new::<[u8]>(truncated);
        let last = block_on(items.by_ref().collect::<Vec<_>>()).pop().unwrap();
        assert!(matches!(last, Err(ListError::Decode(error)) if error.is_incomplete()));
        assert!(items.end().is_none());
    }

    #[test]
    fn combinators_work_on_streams() {
        let body = fixture("configmaps.pb");
        let items = || ListStream::new::<[u8]>(Chunks::new(&body, &[500]));
        let mut all = items();
        block_on((&mut all).try_for_each(|_| std::future::ready(Ok(())))).unwrap();
        assert!(all.is_terminated() && all.end().unwrap().items == 13);
        assert!(all.get_ref().chunks.is_empty() && all.into_inner().chunks.is_empty());
        let large = items()
            .try_filter(|item| std::future::ready(item.len() > LONG))
            .try_fold(0, |n, _| async move { Ok(n + 1) });
        assert_eq!(block_on(large).unwrap(), 3);
        let named =
            ListStream::with(Chunks::new(&body, &[500]), |item| item.meta().map(|meta| meta.name().into_owned()));
        let zipped: Vec<_> = block_on(named.zip(stream::iter(0..)).collect());
        assert_eq!(zipped.len(), 13);
    }

    #[test]
    fn adapters_are_send() {
        fn send<T: Send>(value: T) -> T {
            value
        }
        let body = fixture("configmaps.pb");
        send(ListReader::new::<Pod>(io::empty()));
        let items = send(ListStream::new::<Pod>(Chunks::new(&body, &[500])));
        drop(send(items.try_for_each(|_| std::future::ready(Ok(())))));
    }
}
