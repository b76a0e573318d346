//! Threads that wait for the disk, so that those of the connections do not.
//!
//! ```text
//!   connection --what may read the disk--> queue --> one of READERS threads --> it goes on
//! ```
//!
//! readers.1. However many connections there are, [`READERS`] threads read: each costs a stack, a part of the
//!     allocator, and blocks that were evicted and are not free yet.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// So many threads read. Disks that answer side by side are busy with as many.
const READERS: usize = 16;

type Read = Box<dyn FnOnce() + Send>;

/// The way to the threads. They begin with the first read, and end with this.
#[derive(Default)]
pub struct Readers(OnceLock<Sender<Read>>);

impl Readers {
    /// Has a thread run `read`, which may wait for the disk. A panic of it goes on here; none if no thread
    /// could be started.
    pub async fn run<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let read = move || {
            // If nobody waits for it, its connection is gone.
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
        // Fewer do as well.
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
