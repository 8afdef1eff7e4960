//! Feeds the decoder with bytes from any source, here stdin: `cargo run --example sans_io <fixtures/pods.pb`.

use std::error::Error;
use std::io::{Read, stdin};
use std::ops::ControlFlow;

use listwatch::{Event, Limits, ListDecoder};

fn main() -> Result<(), Box<dyn Error>> {
    let mut decoder = ListDecoder::with_limits(Limits::default().item_size(1 << 20));
    let mut longest = 0;
    let mut chunk = [0; 4096];
    loop {
        let read = stdin().read(&mut chunk)?;
        if read == 0 {
            break;
        }
        let flow = decoder.feed(&mut &chunk[..read], |event| -> ControlFlow<()> {
            match event {
                Event::TypeMeta(type_meta) => println!("a {} of {}", type_meta.kind, type_meta.api_version),
                Event::Item(item) => longest = longest.max(item.bytes().len()),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        if flow?.is_break() {
            break;
        }
    }
    let end = decoder.finish()?;
    println!("{} items, {} bytes, the longest item has {longest} bytes", end.items, end.bytes);
    Ok(())
}
