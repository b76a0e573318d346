//! The socket in a database's directory: its name, its rights, and connections that do not wait for ever.
//!
//! socket.1. Only the process with the directory's lock binds, replaces or removes the socket file.
//! socket.2. Other users cannot connect: the file has mode 0600 before it gets its name. On Linux the host
//!     also asks the system for the user of each peer.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
pub(crate) use std::os::unix::net::UnixStream as Stream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// Name of the socket file.
const SOCKET: &str = "SOCKET";
/// Name of the socket file until it has its mode.
const SOCKET_NEW: &str = "SOCKET-new";
/// Longest path in the address of a socket, on all systems.
const PATH_BYTES_MAX: usize = 100;
/// Pause between attempts to connect while the host's queue of connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: UnixListener,
    /// Device and inode of the file.
    identity: (u64, u64),
}

/// A path for an address. It may lead through an open directory.
struct Address {
    path: PathBuf,
    _dir: Option<File>,
}

impl Address {
    /// The path of a socket file. A long one is replaced by a path through an open directory.
    fn of(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Address { path, _dir: None });
        }
        if !cfg!(target_os = "linux") {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let dir = File::open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&dir)));
        Ok(Address { path, _dir: Some(dir) })
    }
}

/// Binds the socket of a directory that this process has locked, in place of any other file of its name
/// (socket.1).
pub(crate) fn bind(dir: &Path) -> io::Result<Bound> {
    let new = dir.join(SOCKET_NEW);
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(Address::of(dir, SOCKET_NEW)?.path)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    let meta = fs::symlink_metadata(&new)?;
    fs::rename(&new, dir.join(SOCKET))?;
    listener.set_nonblocking(true)?;
    Ok(Bound { listener, identity: (meta.dev(), meta.ino()) })
}

impl Bound {
    /// Returns whether the name still leads to this socket.
    pub(crate) fn has_name(&self, dir: &Path) -> bool {
        fs::symlink_metadata(dir.join(SOCKET)).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity)
    }

    /// Removes the file. The directory is still locked (socket.1).
    pub(crate) fn remove(&self, dir: &Path) {
        if self.has_name(dir) {
            // A file that stays is replaced by the next host.
            let _ = fs::remove_file(dir.join(SOCKET));
        }
    }

    /// Accepts a connection, or returns `None` after a while.
    pub(crate) fn accept(&self, within: Duration) -> io::Result<Option<Stream>> {
        let mut fds = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
        let within = rustix::event::Timespec {
            tv_sec: within.as_secs() as i64,
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        match rustix::event::poll(&mut fds, Some(&within)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                Ok(Some(stream))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Connects to the socket of a directory. If the host's queue is full, waits for a place in it until `until`.
pub(crate) fn connect(dir: &Path, until: Instant) -> io::Result<Stream> {
    let address = Address::of(dir, SOCKET)?;
    let name = SocketAddrUnix::new(&address.path)?;
    loop {
        let stream = unconnected()?;
        match rustix::net::connect(&stream, &name) {
            Ok(()) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(QUEUE_PAUSE);
            }
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A socket whose `connect` does not block.
fn unconnected() -> io::Result<Stream> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    let fd = {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?
    };
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let fd = {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        fd
    };
    let stream = Stream::from(fd);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Refuses a connection of another user (socket.2).
pub(crate) fn check_peer(stream: &Stream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
        if peer != rustix::process::geteuid() && !peer.is_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let _ = stream;
    Ok(())
}
