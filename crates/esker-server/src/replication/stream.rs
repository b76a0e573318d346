//! A replica's connection to its primary, encrypted or not.
//!
//! repl_stream.1. Where it is to be encrypted, nothing is said to a primary whose certificate the roots do not lead to, or that is another host's.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::config::options::ReplicaTls;

/// See the module's text.
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(Box<crate::net::tls::ClientStream>),
}

impl Stream {
    /// Of a connection to a host (repl_stream.1).
    ///
    /// # Errors
    /// What is wrong with the certificate of the primary, or with those of the options.
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

    /// What it goes over.
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
