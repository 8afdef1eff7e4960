//! Any bytes, in any chunks, yield the same events and the same end, in memory that the limits bound.

use allocation_counter::measure;
use listwatch::{Encoding, Event, Limits, ListDecoder, ListEnd, ListMeta, TypeMeta};

use super::support::cut;

/// The last six bytes set the chunk lengths and the limits of the body before them.
pub fn run(data: &[u8]) {
    let Some((body, [a, b, c, which, small, skip])) = data.split_last_chunk() else { return };
    let limits = Caps::new(*which, u64::from(*small), *skip);
    let whole = walk(body, &limits, &[usize::MAX]);
    let lengths = [1 + usize::from(a % 8), 1 + usize::from(*b), 1 + 16 * usize::from(*c)];
    for lengths in [&[1][..], &lengths] {
        assert_eq!(walk(body, &limits, lengths), whole, "in chunks of {lengths:?}");
    }
    // If the truncated list is complete, it has all items.
    let at = (usize::from(*a) << 8 | usize::from(*b)) % (body.len() + 1);
    let truncated = walk(&body[..at], &limits, &lengths);
    assert_eq!(truncated.seen, whole.seen[..truncated.seen.len()]);
    if truncated.end.is_ok() {
        assert_eq!(truncated.items(), whole.items());
    }
    limits.check_memory(body, &lengths);
}

struct Caps {
    item_size: u64,
    items: u64,
    metadata_size: u64,
    limits: Limits,
    skips: bool,
}

impl Caps {
    /// Each limit is small if its bit is set in `which`, and otherwise the default.
    fn new(which: u8, small: u64, skip: u8) -> Self {
        let cap = |bit: u8, small, default| if which >> bit & 1 == 1 { small } else { default };
        let item_size = cap(0, small, Limits::DEFAULT_ITEM_SIZE);
        let items = cap(1, small % 8, u64::MAX);
        let metadata_size = cap(2, small, Limits::DEFAULT_METADATA_SIZE);
        let limits = Limits::default().item_size(item_size).items(items).metadata_size(metadata_size);
        let limits = limits.bytes(cap(3, 8 * small, u64::MAX));
        Self { item_size, items, metadata_size, limits, skips: !skip.is_multiple_of(2) }
    }

    /// Bounds memory by a split item and the kept metadata, each with the buffer that it outgrew. A Status takes more:
    /// two bytes of a cause become three strings.
    fn check_memory(&self, body: &[u8], lengths: &[usize]) {
        let mut is_status = false;
        let counted = measure(|| is_status = drain(body, self, lengths));
        let item = self.item_size.min(body.len() as u64);
        let metadata = self.metadata_size.min(body.len() as u64);
        let max = 2 * item + if is_status { 200 } else { 8 } * metadata + 2000;
        assert!(counted.bytes_max <= max, "{} bytes allocated, over the bound of {max}", counted.bytes_max);
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    TypeMeta(TypeMeta),
    ListMeta(ListMeta),
    Skipped(String),
    Item { bytes: Vec<u8>, encoding: Encoding, type_meta: TypeMeta, index: u64, offset: u64 },
}

#[derive(Debug, PartialEq)]
struct Walked {
    seen: Vec<Seen>,
    /// An error is its text, with its kind, offset and item.
    end: Result<ListEnd, String>,
}

impl Walked {
    fn items(&self) -> usize {
        self.seen.iter().filter(|seen| matches!(seen, Seen::Item { .. })).count()
    }
}

fn walk(body: &[u8], caps: &Caps, lengths: &[usize]) -> Walked {
    let mut decoder = ListDecoder::with_limits(caps.limits).accept_json().skip_item_errors(caps.skips);
    let mut seen = Vec::new();
    let mut broken = None;
    'body: for mut chunk in cut(body, lengths) {
        loop {
            match decoder.decode(&mut chunk) {
                Ok(None) => break,
                Ok(Some(event)) => seen.push(see(event, caps)),
                Err(error) => {
                    broken = Some(error);
                    break 'body;
                }
            }
        }
        assert!(chunk.is_empty());
    }
    let end = decoder.finish();
    if let (Some(broken), end) = (&broken, &end) {
        assert_eq!(end.as_ref().unwrap_err().to_string(), broken.to_string(), "finish returns the error of decode");
    }
    let end = end.map_err(|error| {
        assert!(error.offset() <= body.len() as u64, "{error}");
        format!("{error}: {error:?}")
    });
    let walked = Walked { seen, end };
    if let Ok(end) = &walked.end {
        assert_eq!((end.items, end.bytes), (walked.items() as u64, body.len() as u64));
    }
    walked
}

fn see(event: Event<'_>, caps: &Caps) -> Seen {
    match event {
        Event::TypeMeta(type_meta) => Seen::TypeMeta(type_meta.clone()),
        Event::ListMeta(list_meta) => Seen::ListMeta(list_meta.clone()),
        Event::Skipped(error) => Seen::Skipped(error.to_string()),
        Event::Item(item) => {
            assert!(item.bytes().len() as u64 <= caps.item_size || item.bytes() == b"null");
            assert!(item.index() < caps.items);
            Seen::Item {
                bytes: item.bytes().to_vec(),
                encoding: item.encoding(),
                type_meta: item.type_meta().clone(),
                index: item.index(),
                offset: item.offset(),
            }
        }
        _ => unreachable!("no other events"),
    }
}

/// Decodes and drops the body. Returns true if it ends in an error that the server sent.
fn drain(body: &[u8], caps: &Caps, lengths: &[usize]) -> bool {
    let mut decoder = ListDecoder::with_limits(caps.limits).accept_json().skip_item_errors(caps.skips);
    for mut chunk in cut(body, lengths) {
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return error.status().is_some(),
            }
        }
    }
    drop(decoder.finish());
    false
}
