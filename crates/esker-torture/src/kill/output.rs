//! Reads the output of a child while it is running.
//!
//! ```text
//!   pipe --a thread--> bytes read so far --> the parent, which may wait for more
//! ```

use std::io::{self, Read};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use esker_world::failure::{Failure, Result};

/// The parent's end of the pipe.
pub(crate) struct OutputReader {
    shared: Arc<Shared>,
    listener: JoinHandle<io::Result<()>>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    more: Condvar,
}

#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    ended: bool,
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The expected output arrived.
    Heard,
    /// The child closed the pipe, so it is dead.
    Ended,
    /// The timeout expired.
    TimedOut,
}

impl OutputReader {
    pub(crate) fn on(mut pipe: impl Read + Send + 'static) -> OutputReader {
        let shared = Arc::new(Shared::default());
        let listener = std::thread::spawn({
            let shared = shared.clone();
            move || {
                let end = listen(&mut pipe, &shared);
                shared.heard.lock().ended = true;
                shared.more.notify_all();
                end
            }
        });
        OutputReader { shared, listener }
    }

    /// Waits until the output satisfies `enough`.
    pub(crate) fn wait(&self, timeout: Duration, enough: impl Fn(&[u8]) -> bool) -> Waited {
        let until = Instant::now() + timeout;
        let mut heard = self.shared.heard.lock();
        loop {
            if enough(&heard.bytes) {
                return Waited::Heard;
            }
            if heard.ended {
                return Waited::Ended;
            }
            if self.shared.more.wait_until(&mut heard, until).timed_out() && !enough(&heard.bytes) {
                return Waited::TimedOut;
            }
        }
    }

    /// Returns the output so far.
    pub(crate) fn heard(&self) -> Vec<u8> {
        self.shared.heard.lock().bytes.clone()
    }

    /// Returns the complete output of a dead child.
    pub(crate) fn into_heard(self) -> Result<Vec<u8>> {
        self.listener.join().map_err(|_| Failure::new("the listener panicked"))??;
        Ok(std::mem::take(&mut self.shared.heard.lock().bytes))
    }
}

fn listen(pipe: &mut impl Read, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let n = match pipe.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        shared.heard.lock().bytes.extend_from_slice(&buffer[..n]);
        shared.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_what_was_waited_for_the_end_or_a_timeout() {
        let (reader, mut writer) = io::pipe().unwrap();
        let output = OutputReader::on(reader);
        assert_eq!(output.wait(Duration::from_millis(20), |heard| !heard.is_empty()), Waited::TimedOut);
        io::Write::write_all(&mut writer, b"abc").unwrap();
        assert_eq!(output.wait(Duration::from_secs(60), |heard| heard.len() == 3), Waited::Heard);
        assert_eq!(output.heard(), b"abc");
        drop(writer);
        assert_eq!(output.wait(Duration::from_secs(60), |heard| heard.len() == 4), Waited::Ended);
        assert_eq!(output.into_heard().unwrap(), b"abc");
    }
}
