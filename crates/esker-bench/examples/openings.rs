//! What openings cost: of a new database up to its first synced commit, after a clean close, from a cold page
//! cache, after a kill, and with many keyspaces.
//! Each opening is in a process of its own, which gets one item and says how long both took.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example openings [-- DIRECTORY [ITEMS]]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time, and starts processes")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use esker::{Builder, Db, Durability, Result};
use esker_env::{Env, OpenOptions};

const ROUNDS: usize = 7;
const BATCH: u64 = 1_000;
const ITEM_BYTES: u64 = 24 + 150;
/// Bytes a second of a slow writer. It sleeps at least as long as this.
const SLOW: f64 = 2e6;
const TIMER: Duration = Duration::from_millis(5);
/// Items that a slow writer has written when it is killed, after ten seconds.
const SLOWLY: u64 = 115_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number of items");
    match words[..] {
        ["new", dir, count] => new(Path::new(dir), number(count)),
        ["drop", dir, count] => drop_half(Path::new(dir), number(count)),
        ["load", dir, count] => load(Path::new(dir), number(count)),
        ["load-and-die", dir, count] => load_and_die(Path::new(dir), number(count)),
        ["trickle-and-die", dir, count] => trickle_and_die(Path::new(dir), number(count)),
        ["open", dir, count] => open(Path::new(dir), number(count)),
        ["keyspaces", dir, count] => keyspaces(Path::new(dir), number(count)),
        ["open-keyspaces", dir, count] => open_keyspaces(Path::new(dir), number(count)),
        [] => all(None, 2_000_000),
        [root] => all(Some(root), 2_000_000),
        [root, count, ..] => all(Some(root), number(count)),
    }
}

fn all(root: Option<&str>, count: u64) -> Result<()> {
    let root = match root {
        Some(root) => tempfile::tempdir_in(root),
        None => tempfile::tempdir(),
    };
    let root = root.expect("a temporary directory");
    for count in [0, 200, 10_000] {
        let new = || {
            let dir = root.path().join("new");
            let time = run("new", &dir, count);
            std::fs::remove_dir_all(&dir).expect("a directory to remove");
            time
        };
        print(&format!("new, {count} keyspaces"), (0..ROUNDS).map(|_| new()));
    }
    let drops = (0..ROUNDS).map(|_| {
        let dir = root.path().join("dropped");
        let time = run("drop", &dir, 10_000);
        std::fs::remove_dir_all(&dir).expect("a directory to remove");
        time
    });
    print("5,000 of 10,000 keyspaces dropped together", drops);
    let dir = root.path().join("items");
    run("load", &dir, count);
    print(&format!("clean, {count} items"), (0..ROUNDS).map(|_| run("open", &dir, count)));
    let cold = || {
        drop_cache(&dir);
        run("open", &dir, count)
    };
    print("cold", (0..ROUNDS).map(|_| cold()));
    for (what, part, count) in
        [("a kill", "load-and-die", count), ("a kill of a slow writer", "trickle-and-die", SLOWLY)]
    {
        let killed = || {
            let dir = root.path().join("killed");
            run(part, &dir, count);
            let time = run("open", &dir, count);
            let again = run("open", &dir, count);
            std::fs::remove_dir_all(&dir).expect("a directory to remove");
            (time, again)
        };
        let killed: Vec<_> = (0..3).map(|_| killed()).collect();
        print(&format!("after {what}"), killed.iter().map(|pair| pair.0.clone()));
        print("the next one", killed.iter().map(|pair| pair.1.clone()));
    }
    for count in [1_000, 100_000] {
        let dir = root.path().join(format!("{count}-keyspaces"));
        println!("{}", run("keyspaces", &dir, count));
        let opened = (0..ROUNDS).map(|_| run("open-keyspaces", &dir, count));
        print(&format!("{count} keyspaces, open"), opened);
    }
    Ok(())
}

/// Runs a part of this program in a process of its own; what it says last.
fn run(part: &str, dir: &Path, count: u64) -> String {
    let program = std::env::current_exe().expect("this program");
    let out = Command::new(program).arg(part).arg(dir).arg(count.to_string()).output().expect("a process");
    assert!(out.status.success() || part.ends_with("-and-die"), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Milliseconds, in order.
fn print(what: &str, times: impl Iterator<Item = String>) {
    let mut times: Vec<f64> = times.map(|time| time.parse().expect("a time")).collect();
    times.sort_by(f64::total_cmp);
    println!("{what}: median {:.2} ms of {times:.2?}", times[times.len() / 2]);
}

fn drop_cache(dir: &Path) {
    let fs = Env::real().fs;
    for name in fs.list_dir(dir).expect("a directory") {
        if let Ok(file) = fs.open(&dir.join(name), OpenOptions::read()) {
            let _ = file.drop_cache(0, file.len().unwrap_or(0));
        }
    }
}

fn builder() -> Builder {
    Db::builder().memory(512 << 20)
}

fn key(i: u64) -> [u8; 24] {
    let mut key = [0; 24];
    fastrand::Rng::with_seed(i).fill(&mut key);
    key
}

fn value(i: u64) -> [u8; 150] {
    let mut value = [0; 150];
    fastrand::Rng::with_seed(!i).fill(&mut value);
    value
}

fn put(db: &Db, from: u64, to: u64, durability: Durability) -> Result<()> {
    let map = db.default_keyspace();
    for first in (from..to).step_by(BATCH as usize) {
        let mut batch = db.batch();
        for i in first..(first + BATCH).min(to) {
            batch.put(&map, key(i), value(i))?;
        }
        batch.commit_with(durability)?;
    }
    Ok(())
}

/// Creates a database with this number of keyspaces, and makes one synced commit.
fn new(dir: &Path, count: u64) -> Result<()> {
    let start = Instant::now();
    let db = builder().open(dir)?;
    if count > 0 {
        let mut batch = db.batch();
        for i in 0..count {
            batch.create_keyspace(&format!("keyspace {i}"))?;
        }
        batch.commit()?;
    }
    db.default_keyspace().put("key", "value")?;
    let time = start.elapsed();
    db.close()?;
    println!("{}", time.as_secs_f64() * 1e3);
    Ok(())
}

/// Drops half of this number of keyspaces in one commit.
fn drop_half(dir: &Path, count: u64) -> Result<()> {
    let db = builder().open(dir)?;
    let mut batch = db.batch();
    for i in 0..count {
        let keyspace = batch.create_keyspace(&format!("keyspace {i}"))?;
        batch.put(&keyspace, "key", "value")?;
    }
    batch.commit()?;
    db.flush()?;
    let start = Instant::now();
    let mut batch = db.batch();
    for i in 0..count / 2 {
        batch.drop_keyspace(&format!("keyspace {i}"))?;
    }
    batch.commit()?;
    let time = start.elapsed();
    db.close()?;
    println!("{}", time.as_secs_f64() * 1e3);
    Ok(())
}

fn load(dir: &Path, count: u64) -> Result<()> {
    let db = builder().open(dir)?;
    put(&db, 0, count, Durability::Buffered)?;
    db.compact()?;
    db.close()
}

fn load_and_die(dir: &Path, count: u64) -> Result<()> {
    let db = builder().open(dir)?;
    put(&db, 0, count, Durability::Sync)?;
    put(&db, count, count + count / 10, Durability::Buffered)?;
    std::process::abort();
}

/// Commits items one by one, at [`SLOW`].
fn trickle_and_die(dir: &Path, count: u64) -> Result<()> {
    let db = builder().open(dir)?;
    let map = db.default_keyspace();
    let start = Instant::now();
    for i in 0..count {
        map.with(Durability::Buffered).put(key(i), value(i))?;
        let due = Duration::from_secs_f64((i * ITEM_BYTES) as f64 / SLOW);
        if let Some(ahead) = due.checked_sub(start.elapsed()).filter(|ahead| *ahead > TIMER) {
            std::thread::sleep(ahead);
        }
    }
    std::process::abort();
}

fn open(dir: &Path, count: u64) -> Result<()> {
    let start = Instant::now();
    let db = builder().open(dir)?;
    let found = db.default_keyspace().get(key(count / 2))?;
    let time = start.elapsed();
    assert_eq!(found.as_deref(), Some(&value(count / 2)[..]));
    // Nothing of this opening is left to the next one.
    std::thread::sleep(Duration::from_millis(300));
    db.close()?;
    println!("{}", time.as_secs_f64() * 1e3);
    Ok(())
}

fn keyspaces(dir: &Path, count: u64) -> Result<()> {
    let db = builder().open(dir)?;
    // The first commit of all makes a file.
    db.default_keyspace().put("key", "value")?;
    let start = Instant::now();
    let mut batch = db.batch();
    for i in 0..count {
        batch.create_keyspace(&format!("keyspace {i}"))?;
    }
    batch.commit_with(Durability::Buffered)?;
    let created = start.elapsed();
    let mut batch = db.batch();
    for i in 0..count {
        batch.put(&db.open_keyspace(&format!("keyspace {i}"))?, "key", "value")?;
    }
    batch.commit()?;
    let start = Instant::now();
    for i in 0..count / 100 {
        db.create_keyspace(&format!("one more {i}"))?;
    }
    let each = start.elapsed() / (count / 100) as u32;
    let start = Instant::now();
    for i in 0..count / 100 {
        db.drop_keyspace(&format!("one more {i}"))?;
    }
    let dropped = start.elapsed() / (count / 100) as u32;
    db.flush()?;
    db.close()?;
    println!("{count} keyspaces: created together {created:?}, alone {each:?}, dropped alone {dropped:?}");
    Ok(())
}

fn open_keyspaces(dir: &Path, count: u64) -> Result<()> {
    let start = Instant::now();
    let db = builder().open(dir)?;
    let found = db.open_keyspace(&format!("keyspace {}", count / 2))?.get("key")?;
    let time = start.elapsed();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    db.close()?;
    println!("{}", time.as_secs_f64() * 1e3);
    Ok(())
}
