//! The memory that a decoder of watches allocates, counted.

use allocation_counter::measure;
use listwatch::{DecodeErrorKind, Limits, WatchDecoder};

use super::protobuf;
use crate::support::{cut, fixture, len_field};

/// client-go's own test uses a frame of 17 MiB, too.
#[test]
fn refuses_a_frame_over_the_limit_before_allocating() {
    let mut body = (17_u32 << 20).to_be_bytes().to_vec();
    body.resize(body.len() + (17 << 20), 0xff);
    for chunk in [1, 3, 4096, body.len()] {
        let counted = measure(|| {
            let mut decoder = crate::support::watch_decoder(Limits::default());
            let error = cut(&body, &[chunk]).find_map(|mut chunk| decoder.decode(&mut chunk).err()).unwrap();
            assert!(matches!(error.kind(), DecodeErrorKind::Limit { size: 0x0110_0000, max: 0x0100_0000, .. }));
            assert_eq!(decoder.position(), 4);
        });
        assert!(counted.bytes_total < 300, "{} bytes, more than the error takes", counted.bytes_total);
    }
    // A frame under the limit reserves nothing for its declared length either.
    let counted = measure(|| {
        let mut decoder = crate::support::watch_decoder(Limits::default());
        assert!(decoder.decode(&mut &b"\x00\xff\xff\xff\x0a\x05ADD"[..]).unwrap().is_none());
        assert!(decoder.finish().unwrap_err().is_incomplete());
    });
    assert!(counted.bytes_max < 300, "{} bytes", counted.bytes_max);
}

#[test]
fn no_event_allocates() {
    for name in ["watch-initial-events-pods.pb", "watch-initial-events.pb", "watch-configmaps.json"] {
        let body = fixture(name);
        for chunk in [100, 4096, body.len()] {
            let mut decoder = crate::support::watch_decoder(Limits::default());
            let run = |decoder: &mut WatchDecoder| {
                let mut events = 0;
                for mut chunk in cut(&body, &[chunk]) {
                    while decoder.decode(&mut chunk).unwrap().is_some() {
                        events += 1;
                    }
                }
                assert!(events > 0);
            };
            // The first run allocates the buffer of split frames and the type meta.
            run(&mut decoder);
            let counted = measure(|| run(&mut decoder));
            assert_eq!(counted.count_total, 0, "{name} in chunks of {chunk}");
        }
    }
}

#[test]
fn the_buffer_shrinks_when_frames_are_small_again() {
    let large = protobuf(
        "ADDED",
        "v1",
        "ConfigMap",
        &[&b"\x0a\x03\x32\x017"[..], &len_field(2, &vec![b'x'; 2 << 20])].concat(),
    );
    let small = protobuf("ADDED", "v1", "ConfigMap", b"\x0a\x03\x32\x017");
    let mut decoder = None;
    let mut feed = |body: &[u8], chunk| {
        let counted = measure(|| {
            let decoder = decoder.get_or_insert_with(|| crate::support::watch_decoder(Limits::default()));
            for mut chunk in cut(body, &[chunk]) {
                while decoder.decode(&mut chunk).unwrap().is_some() {}
            }
        });
        (counted.bytes_current, counted.bytes_max)
    };
    let (kept, peak) = feed(&large, 4096);
    assert!(kept >= 2 << 20 && peak <= 2 * large.len() as u64 + 1000, "{kept} and {peak} bytes");
    // The decoder keeps the buffer for one small frame and frees it at the second.
    feed(&small, 4096);
    let (kept, _) = feed(&small, 4096);
    assert!(kept <= -(2 << 20), "{kept} bytes");
}
