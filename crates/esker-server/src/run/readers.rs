//! Threads that read from the disk, so that the threads of connections do not wait for it.
//!
//! ```text
//!   connection --read that may wait--> queue --> one of READERS threads --> result to the connection
//! ```
//!
//! At most [`READERS`] threads read, however many connections there are. Each thread costs a stack, a part of
//! the allocator, and evicted blocks that it still holds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Number of reading threads. Enough to keep disks with parallel queues busy.
const READERS: usize = 16;

type Read = Box<dyn FnOnce() + Send>;

/// Sends reads to the threads. The first read starts the threads. They end when this is dropped.
#[derive(Default)]
pub struct Readers(OnceLock<Sender<Read>>);

impl Readers {
    /// Runs `read`, which may wait for the disk, in a thread. A panic of `read` continues in the caller.
    /// Returns `None` if no thread could be started.
    pub async fn run<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let read = move || {
            // If the receiver is gone, so is the connection.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(read)));
        };
        self.0.get_or_init(start).send(Box::new(read)).ok()?;
        receiver.await.ok().map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

fn start() -> Sender<Read> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..READERS {
        let receiver = receiver.clone();
        let thread = std::thread::Builder::new().name("esker-server-read".into());
        // Fewer threads suffice if some cannot be started.
        let _ = thread.spawn(move || serve(&receiver));
    }
    sender
}

fn serve(reads: &Mutex<Receiver<Read>>) {
    loop {
        let next = reads.lock().recv();
        let Ok(read) = next else { return };
        read();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_goes_on_where_it_is_waited_for_and_the_threads_read_on() {
        let readers = Arc::new(Readers::default());
        for n in 0..2 * READERS {
            let waits = tokio::spawn({
                let readers = readers.clone();
                async move { readers.run(move || if n % 2 == 0 { panic!("{n}") } else { n }).await }
            });
            assert_eq!(waits.await.ok(), (n % 2 == 1).then_some(Some(n)));
        }
    }
}
