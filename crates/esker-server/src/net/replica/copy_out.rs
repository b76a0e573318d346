//! Sends a copy of the database: the files of a checkpoint.
//!
//! ```text
//!   checkpoint beside the database --each file: Keep | File, Data ..., FileEnd--> CopyEnd --> removed
//! ```
//!
//! The copy is of one commit. The replica then asks for the next one, so nothing is missing or repeated.

use std::io;
use std::path::{Path, PathBuf};

use super::sender::Pieces;
use crate::replication::disk;
use crate::replication::frame::{FRAME_BYTES_MAX, Frame};
use crate::run::server::Server;

/// Maximum number of files that a replica may name.
pub const FILES_MAX: usize = 1 << 20;
/// Size of the pieces in which files are sent.
const PIECE_BYTES: usize = FRAME_BYTES_MAX / 2;

/// Returns why this server's database cannot be copied, if it cannot.
pub fn why_not(server: &Server) -> Option<&'static str> {
    if server.replication.local().is_none() {
        return Some(crate::replication::NO_DATABASE);
    }
    if server.options.dir.as_os_str().is_empty() {
        return Some("ERR a database in memory cannot be copied");
    }
    if server.replication.upstream().is_copying {
        return Some("LOADING this server is receiving a copy itself: try again later");
    }
    None
}

/// Sends a copy. `have`: files that the replica has from an earlier attempt.
pub fn send(server: &Server, have: &[(String, u64, u128)], pieces: &Pieces) {
    let Some((db, _)) = server.replication.local() else { return };
    let made = disk::Sent::begin(&server.options.dir).map_err(|error| error.to_string());
    let sent = made.and_then(|made| {
        let dir = made.database();
        db.checkpoint(&dir).map_err(|error| error.to_string())?;
        // The directory is removed when this ends.
        send_files(&dir, have, pieces).map_err(|error| error.to_string())
    });
    let last = match sent {
        Ok(()) => Frame::CopyEnd,
        Err(why) => Frame::End(why),
    };
    push(pieces, &last);
}

fn push(pieces: &Pieces, frame: &Frame) -> bool {
    let mut out = Vec::new();
    frame.encode(&mut out);
    pieces.blocking_send(out).is_ok()
}

fn send_files(dir: &Path, have: &[(String, u64, u128)], pieces: &Pieces) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
    for (name, len) in disk::files(dir)? {
        let path: PathBuf = dir.join(&name);
        if let Some((.., digest)) = have.iter().find(|(known, size, _)| (known, *size) == (&name, len))
            && disk::read(&path, PIECE_BYTES, |_| !pieces.is_closed())? == *digest
        {
            push(pieces, &Frame::Keep(name)).then_some(()).ok_or_else(gone)?;
            continue;
        }
        push(pieces, &Frame::File(name, len)).then_some(()).ok_or_else(gone)?;
        let digest = disk::read(&path, PIECE_BYTES, |piece| push(pieces, &Frame::Data(piece.to_vec())))?;
        push(pieces, &Frame::FileEnd(digest)).then_some(()).ok_or_else(gone)?;
    }
    Ok(())
}
