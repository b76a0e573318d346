//! Starts background threads.

use std::any::Any;
use std::fmt::Debug;
use std::io;

use crate::process::process_id;

/// Starts threads.
pub trait Threads: Send + Sync + Debug + 'static {
    /// Runs `work` on a new thread of this name.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<ThreadHandle>;
    /// Called by a thread that does long work: other threads should not wait for it when they wake up.
    fn give_way(&self) {}
    /// Returns the id of the calling process. After a fork, the child has another id and none of the threads.
    fn process_id(&self) -> u32 {
        process_id()
    }
}

/// A running thread.
#[derive(Debug)]
pub struct ThreadHandle(std::thread::JoinHandle<()>);

impl ThreadHandle {
    /// Waits for the thread to end. If it panicked, returns the message.
    pub fn join(self) -> Result<(), String> {
        self.0.join().map_err(|panic| panic_text(&*panic))
    }
}

/// Returns the message of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}

/// The operating system's threads.
#[derive(Debug, Clone, Copy)]
pub struct SystemThreads;

impl Threads for SystemThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<ThreadHandle> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(ThreadHandle)
    }

    fn give_way(&self) {
        crate::time_slice::give_way();
    }
}
