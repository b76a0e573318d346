//! Keeps the runtime awake while a command runs for long.
//!
//! ```text
//!   thread of this module --every EVERY: an empty task--> an idle worker: runs it, then waits for sockets
//! ```
//!
//! One worker of the runtime waits for sockets and timers; the other idle ones sleep. The one that waits also
//! runs the task that it wakes up for. If this is a long script, no worker waits for sockets meanwhile, and
//! `SCRIPT KILL` is not read. A task from outside wakes another worker, which then waits for sockets. See
//! <https://github.com/tokio-rs/tokio/issues/4730>.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::observe::trace;

/// Maximum time for which no worker waits for sockets.
const EVERY: Duration = Duration::from_millis(50);

/// Ends the thread when it is dropped.
pub struct Pulse {
    _is_wanted: Sender<()>,
}

/// Starts the thread for the runtime of the caller.
pub fn start() -> Pulse {
    let (is_wanted, wanted) = channel();
    let runtime = Handle::current();
    let run = move || {
        while wanted.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            runtime.spawn(async {});
        }
    };
    if let Err(error) = std::thread::Builder::new().name("esker-server-pulse".into()).spawn(run) {
        trace::warn("a long command may delay other clients", None, &format!("start a thread: {error}"));
    }
    Pulse { _is_wanted: is_wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_while_a_task_blocks_its_worker() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let (sender, receiver) = channel();
        let has_come = runtime.unwrap().block_on(async {
            let _pulse = start();
            let blocking = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                receiver.recv_timeout(Duration::from_secs(3))
            });
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                sender.send(())
            });
            blocking.await.unwrap()
        });
        assert_eq!(has_come, Ok(()));
    }
}
