//! Stands for `socket` on systems where the crate has no sockets: there is no host, and no connection.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection, of which there is none.
#[derive(Debug)]
pub(crate) enum Stream {}

/// A bound socket, of which there is none.
#[derive(Debug)]
pub(crate) enum Bound {}

fn unsupported() -> io::Error {
    let text = "several processes cannot share a database on this system: let them use `esker serve`";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

pub(crate) fn bind(_: &Path) -> io::Result<Bound> {
    Err(unsupported())
}

pub(crate) fn connect(_: &Path, _: Instant) -> io::Result<Stream> {
    Err(unsupported())
}

pub(crate) fn check_peer(stream: &Stream) -> io::Result<()> {
    match *stream {}
}

impl Bound {
    pub(crate) fn has_name(&self, _: &Path) -> bool {
        match *self {}
    }

    pub(crate) fn remove(&self, _: &Path) {
        match *self {}
    }

    pub(crate) fn accept(&self, _: Duration) -> io::Result<Option<Stream>> {
        match *self {}
    }
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match *self {}
    }

    pub(crate) fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        match *self {}
    }
}

impl Read for &Stream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match **self {}
    }
}

impl Read for Stream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for &Stream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match **self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match **self {}
    }
}

impl Write for Stream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
