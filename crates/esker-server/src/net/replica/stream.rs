//! A replica's connection to its primary, encrypted or not.
//!
//! On a connection that has to be encrypted, nothing is sent to a primary whose certificate does not lead to
//! the roots, or is for another host.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::config::options::ReplicaTls;

/// A connection.
pub enum Stream {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(Box<crate::net::tls::ClientStream>),
}

impl Stream {
    /// Wraps a connection to a host.
    ///
    /// # Errors
    /// What is wrong with the primary's certificate, or with those of the options.
    pub fn of(stream: TcpStream, host: &str, tls: Option<&ReplicaTls>) -> Result<Stream, String> {
        let Some(tls) = tls else { return Ok(Stream::Plain(stream)) };
        #[cfg(feature = "tls")]
        {
            let agreed = crate::net::tls::connect(stream, host, tls);
            agreed
                .map(|stream| Stream::Encrypted(Box::new(stream)))
                .map_err(|error| format!("TLS with {host}: {error}"))
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (stream, host, tls);
            Err("this server was built without TLS (feature `tls`)".to_owned())
        }
    }

    /// Returns the socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Stream::Encrypted(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Stream::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Stream::Encrypted(stream) => stream.flush(),
        }
    }
}
