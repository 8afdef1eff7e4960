//! A process that only fills a store. So its resident memory is the memory of the store.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use criterion::measurement::Measurement as _;
use listwatch::Encoding;
use listwatch_benches::CpuTime;
use listwatch_cache::{ObjectKey, StorageFormat, Store};

/// The argument with which the program measures the objects that it reads.
pub const COMMAND: &str = "held";

const READS: usize = 100_000;

/// What a store of some objects takes: bytes, and nanoseconds of the processor for each object.
pub struct Held {
    pub objects: usize,
    pub tables: usize,
    pub resident: usize,
    pub write: usize,
    pub read: usize,
    pub read_in_order: usize,
}

impl Held {
    /// Measures a store of these objects in another process.
    pub fn of(objects: &[(Encoding, Vec<u8>)]) -> Result<Self, Box<dyn Error>> {
        let mut child =
            Command::new(std::env::current_exe()?).arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = io::BufWriter::new(child.stdin.take().ok_or("no stdin")?);
        for (encoding, bytes) in objects {
            input.write_all(&[encoding.number()])?;
            input.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
            input.write_all(bytes)?;
        }
        drop(input);
        let output = child.wait_with_output()?;
        let numbers = String::from_utf8(output.stdout)?;
        let numbers: Vec<usize> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [objects, tables, resident, write, read, read_in_order] = numbers[..] else {
            return Err("no result".into());
        };
        Ok(Self { objects, tables, resident, write, read, read_in_order })
    }
}

/// Reads objects, writes them to a store, and prints what it takes.
pub fn measure() -> Result<(), Box<dyn Error>> {
    // These buffers are not of the store, so they are resident before it.
    let mut input = BufReader::with_capacity(64 << 10, io::stdin().lock());
    input.fill_buf()?;
    let mut bytes = vec![1; 256 << 10];
    let before = resident()?;
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let mut relist = store.begin_relist();
    let mut write = 0;
    let mut head = [0; 5];
    while input.read_exact(&mut head).is_ok() {
        let [encoding, len @ ..] = head;
        bytes.resize(u32::from_le_bytes(len) as usize, 0);
        input.read_exact(&mut bytes)?;
        let encoding = Encoding::from_number(encoding).ok_or("an unknown encoding")?;
        let start = CpuTime.start();
        drop(relist.apply(encoding, &bytes)?);
        write += CpuTime.end(start);
    }
    relist.commit("1900000000")?;
    let memory = store.memory();
    // Allocators may free memory later.
    thread::sleep(Duration::from_millis(100));
    let resident = resident()?.saturating_sub(before);
    let count = store.len().max(1);
    let objects = memory.compressed + memory.encoded;
    let mut keys: Vec<_> = store.snapshot().iter().map(|object| object.key()).collect();
    let read_in_order = reads(&store, &keys)?;
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    let read = reads(&store, &keys)?;
    let each = |sum: usize| sum / count;
    let write = usize::try_from(write)? / count;
    println!("{} {} {} {write} {read} {read_in_order}", each(objects), each(memory.total() - objects), each(resident));
    Ok(())
}

/// Returns the time to find and decompress an object.
fn reads(store: &Store<[u8]>, keys: &[ObjectKey]) -> Result<usize, Box<dyn Error>> {
    let start = CpuTime.start();
    for key in keys.iter().cycle().take(READS) {
        black_box(store.get(key).ok_or("no object")?.encoded()?);
    }
    Ok(usize::try_from(CpuTime.end(start))? / READS)
}

/// Returns the anonymous resident memory in bytes.
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}
