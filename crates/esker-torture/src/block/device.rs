//! A disk drive in memory, presented as a file of a FUSE file system. A loop device on it is a block device
//! to the kernel.
//!
//! ```text
//!   ext4 --blocks--> /dev/loopN --write, fsync--> FUSE --> DriveFs --> Drive { image, events }
//! ```
//!
//! A flush of the block device arrives as an fsync and covers all earlier writes: requests are handled one at
//! a time, in the order of the events. The drive declares a write cache, so only a flush makes a write
//! durable.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use parking_lot::Mutex;

use crate::content::Content;
use crate::writers::WriterEvent;

/// Name of the only file.
pub(crate) const FILE: &str = "drive";
const FILE_INODE: u64 = 2;
/// The kernel must not cache attributes.
const TTL: Duration = Duration::ZERO;

/// An event of the drive, or a report of a writer.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
    WriterEvent(WriterEvent),
}

/// The drive. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Drive(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The contents visible to the running system.
    image: Vec<u8>,
    events: Vec<Event>,
    /// Canary: flushes do nothing.
    lies: bool,
}

impl Drive {
    /// Creates a drive of zeros. With `lies`, flushes do nothing.
    pub(crate) fn new(bytes: usize, lies: bool) -> Self {
        Drive(Arc::new(Mutex::new(State { image: vec![0; bytes], events: Vec::new(), lies })))
    }

    /// Replaces the contents and forgets all events.
    pub(crate) fn replace(&self, image: Vec<u8>) {
        let mut state = self.0.lock();
        state.image = image;
        state.events.clear();
    }

    /// Returns the contents visible to the running system.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.0.lock().image.clone()
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().events)
    }

    /// Records a report of a writer.
    pub(crate) fn say(&self, said: WriterEvent) {
        self.0.lock().events.push(Event::WriterEvent(said));
    }
}

/// Replays the event at position `at`.
pub(crate) fn apply(content: &mut Content, at: usize, event: &Event) {
    match event {
        Event::Write { offset, bytes } => content.write(at, *offset, bytes.clone()),
        Event::Flush => content.sync(at),
        Event::WriterEvent(_) => {}
    }
}

/// A file system with the drive as its only file.
pub(crate) struct DriveFs(pub(crate) Drive);

impl DriveFs {
    fn attr(&self, inode: INodeNo) -> Option<FileAttr> {
        let kind = match u64::from(inode) {
            1 => FileType::Directory,
            FILE_INODE => FileType::RegularFile,
            _ => return None,
        };
        let size = if kind == FileType::Directory { 0 } else { self.0.0.lock().image.len() as u64 };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for DriveFs {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(INodeNo(FILE_INODE)).filter(|_| name == FILE) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.0.lock();
        let len = state.image.len();
        let from = usize::try_from(offset).map_or(len, |offset| offset.min(len));
        let to = from.saturating_add(size as usize).min(len);
        reply.data(&state.image[from..to]);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.0.0.lock();
        let end =
            usize::try_from(offset).ok().and_then(|offset| Some((offset, offset.checked_add(data.len())?)));
        match end.filter(|(_, end)| *end <= state.image.len()) {
            Some((offset, end)) => {
                state.image[offset..end].copy_from_slice(data);
                state.events.push(Event::Write { offset, bytes: data.to_vec() });
                reply.written(data.len() as u32);
            }
            None => reply.error(Errno::ENOSPC),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let mut state = self.0.0.lock();
        if !state.lies {
            state.events.push(Event::Flush);
        }
        reply.ok();
    }
}
