//! The blocking client.

use redis::{Connection, Msg, Value};

use crate::es::{KeyEvent, Watch};
use crate::ob::{self, Begin, Row, Slice};
use crate::retry::{Attempts, Retry};
use crate::{Request, Result};

/// A connection to a server, for one thread.
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Connects to a server: `redis://[user:password@]host:port/`, or `unix:///path`.
    ///
    /// # Errors
    /// [`Error::Connection`](crate::Error::Connection), and a refused login.
    pub fn connect(url: &str) -> Result<Self> {
        Ok(Client { connection: redis::Client::open(url)?.get_connection()? })
    }

    /// Wraps a connection of the crate `redis`.
    pub fn with(connection: Connection) -> Self {
        Client { connection }
    }

    /// Returns the connection, for all other commands.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Runs a request and waits for its reply.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn run<T>(&mut self, request: Request<T>) -> Result<T> {
        (request.read)(request.command.query::<Value>(&mut self.connection)?)
    }

    /// Runs a transaction: begins it, calls `work`, and commits. Repeats this after a conflict, a deadlock,
    /// or a change of something that the transaction watches, as often as [`Retry::default`] says. Rolls back
    /// if `work` fails with another error. The transaction covers rows and ordered keys.
    ///
    /// # Errors
    /// Those of `work`, and of the commit. A conflict only after the last attempt.
    pub fn transact<T>(&mut self, begin: Begin, work: impl FnMut(&mut Client) -> Result<T>) -> Result<T> {
        self.transact_with(begin, Retry::default(), work)
    }

    /// Same as [`transact`](Self::transact), with other limits.
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    #[expect(clippy::disallowed_methods, reason = "the client has no simulated clock")]
    pub fn transact_with<T>(
        &mut self,
        begin: Begin,
        retry: Retry,
        mut work: impl FnMut(&mut Client) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::new(retry);
        loop {
            self.run(begin.request())?;
            let done = match work(self) {
                Ok(done) => self.run(ob::commit()).map(|()| done),
                Err(error) => {
                    // Report the first error, not that of the rollback.
                    let _ = self.run(ob::abort());
                    Err(error)
                }
            };
            match done {
                Err(error) if error.is_retryable() => match attempts.pause() {
                    Some(pause) => std::thread::sleep(pause),
                    None => return Err(error),
                },
                done => return done,
            }
        }
    }

    /// Watches keys, and returns their changes as they arrive. The connection does nothing else from then on.
    /// Read the keys with another one once this has returned.
    ///
    /// ```no_run
    /// # use esker_client::{Client, Result, es};
    /// # fn main() -> Result<()> {
    /// let client = Client::connect("redis://127.0.0.1:6379/")?;
    /// for event in client.changes(es::watch().prefix("user:"))? {
    ///     println!("{:?}", event?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn changes(mut self, watch: Watch) -> Result<KeyEvents> {
        self.run(watch.request())?;
        Ok(KeyEvents { client: self, is_over: false })
    }

    /// Returns the rows of a slice, fetching `max_keys` rows of the slice at a time.
    pub fn pages(&mut self, slice: Slice) -> Pages<'_> {
        Pages { client: self, slice, rows: Vec::new().into_iter(), is_over: false }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Changes of watched keys, in order. Waits for each. Created by [`Client::changes`]. An error is the last
/// item.
#[derive(Debug)]
pub struct KeyEvents {
    client: Client,
    is_over: bool,
}

impl Iterator for KeyEvents {
    type Item = Result<KeyEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.client.connection.recv_response() {
                Ok(value) => {
                    if let Some(event) = Msg::from_owned_value(value).as_ref().and_then(KeyEvent::of) {
                        return Some(Ok(event));
                    }
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error.into()));
                }
            }
        }
        None
    }
}

/// The rows of a slice, fetched page by page. Created by [`Client::pages`]. An error is the last item.
#[derive(Debug)]
pub struct Pages<'a> {
    client: &'a mut Client,
    slice: Slice,
    rows: std::vec::IntoIter<Row>,
    is_over: bool,
}

impl Iterator for Pages<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if self.is_over {
                return None;
            }
            match self.client.run(self.slice.request()) {
                Ok(page) => {
                    self.is_over = page.last.is_none();
                    if let Some(last) = page.last {
                        self.slice = self.slice.clone().after(last);
                    }
                    self.rows = page.rows.into_iter();
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
