//! Receives a copy of the primary's database, which then replaces the replica's own.
//!
//! ```text
//!   Have ... --> primary;  File, Data ..., FileEnd | Keep --> data.esker-full --role: replica--> restart
//! ```
//!
//! - An interrupted copy is continued: complete files are not sent again.
//! - The copy records that it is a replica before it replaces the database. So no crash makes it a second
//!   primary.
//! - Another thread writes the data, and syncs while it writes. Neither the network nor the disk waits for
//!   more than some MiB of the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esker::{Db, is_of_database};

use super::follow::Upstream;
use crate::config::source::Source;
use crate::replication::apply::text;
use crate::replication::disk;
use crate::replication::frame::Frame;
use crate::run::server::Server;

/// Size of pieces when reading files.
const PIECE_BYTES: usize = 512 << 10;
/// Maximum number of pieces that have arrived and are not written.
const WORKS_MAX: usize = 32;

/// Receives a copy, and makes the server restart with it.
///
/// # Errors
/// Why it failed. What has arrived stays, to be continued.
pub fn receive(server: &Arc<Server>, upstream: &mut Upstream, source: &Source) -> Result<(), String> {
    let dir = &server.options.dir;
    if dir.as_os_str().is_empty() {
        return Err("a copy is needed, and a database in memory cannot take one".to_owned());
    }
    let full = disk::begin_full(dir).map_err(text)?;
    for (name, len) in disk::files(&full).map_err(text)? {
        let digest = disk::read(&full.join(&name), PIECE_BYTES, |_| true).map_err(text)?;
        upstream.send(&Frame::Have(name, len, digest))?;
    }
    upstream.send(&Frame::HaveEnd)?;
    let names = receive_files(upstream, &full)?;
    for (name, _) in disk::files(&full).map_err(text)? {
        if !names.contains(&name) {
            disk::remove_file(&full.join(name)).map_err(text)?;
        }
    }
    disk::sync_dir(&full).map_err(text)?;
    let env = server.local().map_err(|_| "the files are on another machine")?.env();
    let db = Db::builder().env(env).allow_missing_merge_operators(true).open(&full).map_err(text)?;
    let name = server.replication.name().map_err(text)?;
    server.replication.replace(upstream.term(), |ballot| {
        crate::replication::prepare::prepare(db, source, name.as_deref(), ballot)?;
        server.restart_from_copy();
        Ok(())
    })
}

/// Receives the files and returns their names.
fn receive_files(upstream: &mut Upstream, full: &Path) -> Result<Vec<String>, String> {
    std::thread::scope(|scope| {
        let (works, queue) = sync_channel(WORKS_MAX);
        let writer = scope.spawn(move || write_files(full, &queue));
        let received = take_files(upstream, &works);
        drop(works);
        let written =
            writer.join().unwrap_or_else(|_| Err("the thread that writes the copy panicked".to_owned()));
        written.and(received)
    })
}

/// Work for the writing thread.
enum Work {
    Begin(String, u64),
    Bytes(Vec<u8>),
    End(u128),
}

fn take_files(upstream: &mut Upstream, works: &SyncSender<Work>) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut is_open = false;
    // The writing thread reports why it has ended.
    let work = |work: Work| works.send(work).map_err(|_| "the copy cannot be written".to_owned());
    loop {
        match upstream.next()? {
            None | Some(Frame::Alive(_)) => {}
            Some(Frame::Keep(name)) if !is_open && is_plain(&name) => names.push(name),
            Some(Frame::File(name, len)) if !is_open && is_plain(&name) => {
                names.push(name.clone());
                work(Work::Begin(name, len))?;
                is_open = true;
            }
            Some(Frame::Data(bytes)) if is_open => work(Work::Bytes(bytes))?,
            Some(Frame::FileEnd(digest)) if is_open => {
                work(Work::End(digest))?;
                is_open = false;
            }
            Some(Frame::CopyEnd) if !is_open => return Ok(names),
            Some(Frame::End(why)) => return Err(format!("the primary cannot send its copy: {why}")),
            Some(other) => return Err(format!("unexpected in a copy: {other:?}")),
        }
        upstream.keep_alive()?;
    }
}

/// Writes files until there is no more work.
fn write_files(full: &Path, queue: &Receiver<Work>) -> Result<(), String> {
    let mut file: Option<(String, disk::Writer)> = None;
    for work in queue {
        match (work, file.take()) {
            (Work::Begin(name, len), _) => {
                let writer = disk::Writer::create(&full.join(&name), len).map_err(text)?;
                file = Some((name, writer));
            }
            (Work::Bytes(bytes), Some((name, mut writer))) => {
                writer.write(&bytes).map_err(text)?;
                file = Some((name, writer));
            }
            (Work::End(digest), Some((name, writer))) => {
                if writer.left > 0 || writer.finish().map_err(text)? != digest {
                    return Err(format!("the file {name} came damaged"));
                }
            }
            _ => return Err("bytes came for no file".to_owned()),
        }
    }
    Ok(())
}

/// Returns whether a name is that of a file in a database's directory.
fn is_plain(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    is_of_database(name) && name.bytes().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn files_lie_in_the_directory_itself() {
        assert!(["000012.sst", "CURRENT", "MANIFEST-000007"].iter().all(|name| is_plain(name)));
        assert!(
            ["", ".", "..", "../x", "a/b", "a\\b", "C:x", ".hidden", "notes.txt"]
                .iter()
                .all(|name| !is_plain(name))
        );
    }
}
