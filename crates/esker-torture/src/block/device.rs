//! A disk drive in memory, as a file of a FUSE file system: a loop device on it is a real block device to the kernel.
//!
//! ```text
//!   ext4 --blocks--> /dev/loopN --write, fsync--> FUSE --> DriveFs --> Drive { image, events }
//! ```
//!
//! device.1. A flush of the block device arrives as an fsync. It covers every write that was answered before: requests are taken
//!      one by one, in the order in which they stand in the events.
//! device.2. The drive has a write cache and says so: nothing but a flush makes a write durable.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use parking_lot::Mutex;

use crate::content::Content;
use crate::writers::Said;

/// The name of the one file.
pub(crate) const FILE: &str = "drive";
const FILE_INODE: u64 = 2;
/// The kernel asks again each time.
const TTL: Duration = Duration::ZERO;

/// One thing that happened to the drive, or was said meanwhile.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
    Said(Said),
}

/// The drive. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Drive(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What the running system sees.
    image: Vec<u8>,
    events: Vec<Event>,
    /// Canary: a flush does nothing.
    lies: bool,
}

impl Drive {
    /// A drive of so many zeros. `lies`: its flushes do nothing.
    pub(crate) fn new(bytes: usize, lies: bool) -> Self {
        Drive(Arc::new(Mutex::new(State { image: vec![0; bytes], events: Vec::new(), lies })))
    }

    /// Puts other contents in, and forgets what happened.
    pub(crate) fn replace(&self, image: Vec<u8>) {
        let mut state = self.0.lock();
        state.image = image;
        state.events.clear();
    }

    /// What the running system sees.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.0.lock().image.clone()
    }

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().events)
    }

    /// Notes what somebody says.
    pub(crate) fn say(&self, said: Said) {
        self.0.lock().events.push(Event::Said(said));
    }
}

/// Replays one event; `at` is its position.
pub(crate) fn apply(content: &mut Content, at: usize, event: &Event) {
    match event {
        Event::Write { offset, bytes } => content.write(at, *offset, bytes.clone()),
        Event::Flush => content.sync(at),
        Event::Said(_) => {}
    }
}

/// The file system with the drive as its one file.
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
