//! Measures what a synced WAL record costs, by how the blocks under it came to be.
//!
//! ```text
//!   {append | fallocate | prewritten} x {buffered | direct} x {200 B, 4 KiB, 176 KiB}
//!       each cell: its own file; a record is one write at the file's used end, then fdatasync
//! ```
//!
//! - `append` grows the file with each record;
//! - `fallocate` writes into blocks that are reserved but were never written;
//! - `prewritten` overwrites zeros that were written and synced before the clock starts.
//!
//! A direct write covers whole blocks: a record that ends inside one rewrites that block with the next
//! record. Cells take turns in rounds, so that a slow moment of the machine hits them all; the table shows
//! the median and the 90th percentile of all records of a cell, in microseconds. The figures stand in
//! docs/formats/wal.md.
//!
//! Run: `cargo run --release -p esker-bench --no-default-features --example wal_variants -- DIR [ROUNDS]`
//! (DIR on the disk to measure; a sub-directory is made there and its files are removed at the end).

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{AlignedBuf, Env, File, OpenOptions};

const RECORD_SIZES: [usize; 3] = [200, 4096, 176 << 10];
const RECORDS_PER_ROUND: usize = 20;
const ROUNDS_DEFAULT: usize = 15;
const ZEROS_CHUNK: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Append,
    Fallocate,
    Prewritten,
}

/// One cell of the table: a file, and how far it is used.
struct Cell {
    blocks: Blocks,
    direct: bool,
    record_size: usize,
    path: PathBuf,
    file: Arc<dyn File>,
    buf: AlignedBuf,
    used: u64,
    samples_ns: Vec<u64>,
}

impl Cell {
    fn create(
        env: &Env,
        dir: &Path,
        (blocks, direct, record_size): (Blocks, bool, usize),
        records: usize,
    ) -> io::Result<Cell> {
        let mode = if direct { "direct" } else { "buffered" };
        let path = dir.join(format!("{blocks:?}-{mode}-{record_size}"));
        // Room for all records, and for the last block that a direct write fills up.
        let size = (records * record_size + AlignedBuf::ALIGN).next_multiple_of(ZEROS_CHUNK);
        let options = OpenOptions::create();
        let file = env.fs.open(&path, if direct { options.direct() } else { options })?;
        if direct && !file.is_direct() {
            return Err(io::Error::other("this file system has no direct I/O: measure on another"));
        }
        match blocks {
            Blocks::Append => {}
            Blocks::Fallocate => file.allocate(0, size as u64)?,
            Blocks::Prewritten => {
                let zeros = AlignedBuf::zeroed(ZEROS_CHUNK);
                for offset in (0..size).step_by(ZEROS_CHUNK) {
                    file.write_all_at(&zeros, offset as u64)?;
                }
            }
        }
        file.sync_data()?;
        env.fs.sync_dir(dir)?;
        let mut buf = AlignedBuf::zeroed(record_size + AlignedBuf::ALIGN);
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        Ok(Cell { blocks, direct, record_size, path, file, buf, used: 0, samples_ns: Vec::new() })
    }

    fn write_record(&mut self, env: &Env) -> io::Result<()> {
        let (start, end) = (self.used, self.used + self.record_size as u64);
        let block = AlignedBuf::ALIGN as u64;
        let (from, to) =
            if self.direct { (start / block * block, end.next_multiple_of(block)) } else { (start, end) };
        let began = env.clock.monotonic();
        self.file.write_all_at(&self.buf[..(to - from) as usize], from)?;
        self.file.sync_data()?;
        self.samples_ns.push((env.clock.monotonic() - began).as_nanos() as u64);
        self.used = end;
        Ok(())
    }

    fn print(mut self) {
        self.samples_ns.sort_unstable();
        let at =
            |percent: usize| self.samples_ns[(self.samples_ns.len() - 1) * percent / 100] as f64 / 1000.0;
        let mode = if self.direct { "direct" } else { "buffered" };
        println!(
            "{:<11} {mode:<9} {:>8} {:>9.1} {:>9.1}",
            format!("{:?}", self.blocks).to_lowercase(),
            self.record_size,
            at(50),
            at(90)
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: wal_variants DIR [ROUNDS]")?).join("wal_variants");
    let rounds = args.next().map_or(Ok(ROUNDS_DEFAULT), |n| n.parse())?;
    let env = Env::real();
    env.fs.create_dir_all(&dir)?;

    let mut cells = Vec::new();
    for record_size in RECORD_SIZES {
        for direct in [false, true] {
            for blocks in [Blocks::Append, Blocks::Fallocate, Blocks::Prewritten] {
                let records = rounds * RECORDS_PER_ROUND;
                cells.push(Cell::create(&env, &dir, (blocks, direct, record_size), records)?);
            }
        }
    }
    for _ in 0..rounds {
        for cell in &mut cells {
            for _ in 0..RECORDS_PER_ROUND {
                cell.write_record(&env)?;
            }
        }
    }
    println!("{:<11} {:<9} {:>8} {:>9} {:>9}", "blocks", "mode", "record B", "p50 us", "p90 us");
    for cell in cells {
        env.fs.remove_file(&cell.path)?;
        cell.print();
    }
    Ok(())
}
