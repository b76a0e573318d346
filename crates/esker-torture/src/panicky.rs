//! Background threads that panic, for canaries: once at the start, which only standard error shows, and once
//! at the end, which closing the database reports. In between they work.

use std::io;

use esker_env::{SystemThreads, ThreadHandle, Threads};

/// The operating system's threads, with panics.
#[derive(Debug)]
pub(crate) struct PanickyThreads;

impl Threads for PanickyThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<ThreadHandle> {
        let panics = Box::new(move || {
            let _: std::thread::Result<()> = std::panic::catch_unwind(|| panic!("a canary at the start"));
            work();
            panic!("a canary at the end");
        });
        SystemThreads.spawn(name, panics)
    }
}
