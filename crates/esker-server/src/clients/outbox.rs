//! Output that waits to be sent to a connection, and the end of the connection.
//!
//! ```text
//!   PUBLISH, MONITOR, topics --send--> messages --take--> the connection's task --> socket
//!                               `-- over the limit: end
//!   CLIENT TRACKING ------push--> pushes ----take, once no replies wait---------> ...
//! ```
//!
//! - Waiting bytes are limited by `client-output-buffer-limit`. A client that does not read is disconnected.
//! - A task that waits for the socket of a connection also waits for the end of that connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::clock;
use crate::resp::Out;
use crate::resp::numbers::bytes_of;

/// A class of clients in `client-output-buffer-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Replies to clients without subscriptions.
    Normal,
    /// Replicas. The sender bounds their output, below any limit that can be set.
    Replica,
    /// Messages that answer no request, and replies to subscribers.
    Pubsub,
}

const CLASSES: [(&str, Class); 4] = [
    ("normal", Class::Normal),
    ("slave", Class::Replica),
    ("replica", Class::Replica),
    ("pubsub", Class::Pubsub),
];

/// A hard limit, a soft limit, and the seconds for which output may exceed the soft limit. 0: no limit.
type Limit = [u64; 3];

/// The default limits of Redis.
pub const DEFAULT_LIMITS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";

/// The limits of each class. Atomics are relaxed: the limits are independent.
#[derive(Debug)]
pub struct OutputLimits([[AtomicU64; 3]; 3]);

impl Default for OutputLimits {
    fn default() -> Self {
        let limits = OutputLimits(Default::default());
        if let Ok(parsed) = limits.parsed(DEFAULT_LIMITS) {
            limits.set(parsed);
        }
        limits
    }
}

impl OutputLimits {
    /// Parses limits. Classes that the text does not name keep theirs.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parsed(&self, text: &str) -> Result<[Limit; 3], &'static str> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.");
        }
        let mut limits = self.0.each_ref().map(|limit| limit.each_ref().map(|n| n.load(Ordering::Relaxed)));
        for group in words.chunks_exact(4) {
            let class = CLASSES.iter().find(|(name, _)| name.eq_ignore_ascii_case(group[0]));
            let (_, class) = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
            let numbers = (bytes_of(group[1]), bytes_of(group[2]), group[3].parse().ok());
            let (Some(hard), Some(soft), Some(seconds)) = numbers else {
                return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.");
            };
            limits[*class as usize] = [hard, soft, seconds];
        }
        Ok(limits)
    }

    /// Sets all of them.
    pub fn set(&self, limits: [Limit; 3]) {
        for (old, new) in self.0.iter().flatten().zip(limits.iter().flatten()) {
            old.store(*new, Ordering::Relaxed);
        }
    }

    /// Formats limits.
    pub fn text(limits: [Limit; 3]) -> String {
        let text = |name: &str, [hard, soft, seconds]: Limit| format!("{name} {hard} {soft} {seconds}");
        let [normal, replica, pubsub] = limits;
        [text("normal", normal), text("slave", replica), text("pubsub", pubsub)].join(" ")
    }

    fn of(&self, class: Class) -> Limit {
        self.0[class as usize].each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    /// Returns whether this number of bytes exceeds the hard limit of a class.
    pub fn is_over_hard(&self, class: Class, bytes: usize) -> bool {
        let [hard, ..] = self.of(class);
        hard > 0 && bytes as u64 > hard
    }
}

/// Messages that answer no request.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    /// Invalidations. They are sent after the replies (tracking.1).
    pushes: Vec<u8>,
    /// Its job waits, and all replies before that are in `early` or sent.
    may_push: bool,
}

impl Messages {
    fn len(&self) -> usize {
        self.bytes.len() + self.pushes.len()
    }
}

/// Output that waits for one connection. Atomics are relaxed: their readers check again.
#[derive(Default)]
pub struct Outbox {
    limits: Arc<OutputLimits>,
    messages: Mutex<Messages>,
    early: Mutex<Out>,
    /// Bytes that the task has taken and not sent.
    sending: AtomicUsize,
    /// Unix milliseconds since which the soft limit of each class is exceeded; 0: it is not.
    over_since: [AtomicU64; 3],
    is_ended: AtomicBool,
    ended: Notify,
}

impl Outbox {
    /// Creates the output of a connection with these limits.
    pub fn new(limits: Arc<OutputLimits>) -> Self {
        Outbox { limits, ..Outbox::default() }
    }

    /// Makes the connection end.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Returns whether it has to end.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Waits until the connection has to end. Only its own task waits here.
    pub async fn ended(&self) {
        while !self.is_ended() {
            self.ended.notified().await;
        }
    }

    /// Adds a message. Ends the connection if too much waits.
    pub fn add(&self, bytes: &[u8]) {
        self.add_to(bytes, |messages| &mut messages.bytes);
    }

    /// Adds an invalidation. Ends the connection if too much waits.
    pub fn add_push(&self, bytes: &[u8]) {
        self.add_to(bytes, |messages| &mut messages.pushes);
    }

    fn add_to(&self, bytes: &[u8], part: impl FnOnce(&mut Messages) -> &mut Vec<u8>) {
        let mut messages = self.messages.lock();
        if self.is_ended() {
            return;
        }
        if self.is_over(Class::Pubsub, messages.len() + bytes.len()) {
            *messages = Messages::default();
            self.end();
        } else {
            part(&mut messages).extend_from_slice(bytes);
        }
    }

    /// Adds replies that are sent before their job has returned.
    pub fn add_early(&self, mut replies: Out) {
        self.early.lock().append(&mut replies);
    }

    /// Takes the replies added by `add_early`.
    pub fn take_early(&self) -> Out {
        self.early.lock().take()
    }

    /// Takes the messages.
    pub fn take_messages(&self) -> Vec<u8> {
        std::mem::take(&mut self.messages.lock().bytes)
    }

    /// Takes the invalidations.
    pub fn take_pushes(&self) -> Vec<u8> {
        std::mem::take(&mut self.messages.lock().pushes)
    }

    /// Takes the messages and the invalidations.
    pub fn take_all(&self) -> Vec<u8> {
        let messages = &mut *self.messages.lock();
        let mut taken = std::mem::take(&mut messages.bytes);
        taken.append(&mut messages.pushes);
        taken
    }

    /// Takes the messages, and the invalidations if the job of the connection waits.
    pub fn take_while_waiting(&self) -> Vec<u8> {
        let messages = &mut *self.messages.lock();
        let mut taken = std::mem::take(&mut messages.bytes);
        if messages.may_push {
            taken.append(&mut messages.pushes);
        }
        taken
    }

    /// Records whether the job of the connection waits, after its replies so far were added (tracking.1).
    pub fn set_may_push(&self, may_push: bool) {
        self.messages.lock().may_push = may_push;
    }

    /// Records how many bytes the task still has to send.
    #[inline]
    pub fn set_sending(&self, bytes: usize) {
        self.sending.store(bytes, Ordering::Relaxed);
    }

    /// Records that the task has sent what it took. Soft limits that the rest does not exceed count as not
    /// exceeded.
    pub fn note_sent(&self) {
        self.set_sending(0);
        if self.over_since.iter().all(|since| since.load(Ordering::Relaxed) == 0) {
            return;
        }
        let waiting = self.unsent() as u64;
        for (limit, since) in self.limits.0.iter().zip(&self.over_since) {
            if waiting <= limit[1].load(Ordering::Relaxed) {
                since.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of bytes that the task has not taken.
    fn unsent(&self) -> usize {
        self.messages.lock().len() + self.early.lock().bytes.len()
    }

    /// Returns the number of bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.unsent() + self.sending.load(Ordering::Relaxed)
    }

    /// Returns, while the task sends, whether the output of a client of this class exceeds a limit. Messages
    /// are bounded by the limits of subscribers for clients of any class, as in `add`.
    pub fn is_late(&self, class: Class) -> bool {
        let messages = self.messages.lock().len();
        let is_over = self.is_over(class, messages + self.early.lock().bytes.len());
        is_over || class != Class::Pubsub && messages > 0 && self.is_over(Class::Pubsub, messages)
    }

    /// Returns whether `more` bytes, together with those being sent, exceed the limits of a class.
    fn is_over(&self, class: Class, more: usize) -> bool {
        let [hard, soft, seconds] = self.limits.of(class);
        let bytes = (more + self.sending.load(Ordering::Relaxed)) as u64;
        if hard > 0 && bytes > hard {
            return true;
        }
        let over_since = &self.over_since[class as usize];
        if soft == 0 || bytes <= soft {
            over_since.store(0, Ordering::Relaxed);
            return false;
        }
        let now = clock::now_ms();
        let first = over_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|since| now.saturating_sub(since) > 1000 * seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown() {
        let limits = OutputLimits::default();
        assert_eq!(limits.parsed("").map(OutputLimits::text).as_deref(), Ok(DEFAULT_LIMITS));
        let changed = limits.parsed("normal 1mb 512kb 5 replica 0 0 0").map(OutputLimits::text);
        assert_eq!(changed.as_deref(), Ok("normal 1048576 524288 5 slave 0 0 0 pubsub 33554432 8388608 60"));
        for wrong in ["normal 1 2", "master 1 2 3", "normal x 2 3", "normal 1 2 -3", "normal 1 2 3 4"] {
            assert!(limits.parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let limits = Arc::new(OutputLimits::default());
        limits.set([[0; 3], [0; 3], [100, 50, 0]]);
        let outbox = Outbox::new(limits);
        outbox.add(&[0; 40]);
        outbox.set_sending(40);
        outbox.add(&[0; 20]);
        assert!(!outbox.is_ended(), "100 bytes are not over the limit");
        outbox.add(&[0; 1]);
        assert!(outbox.is_ended() && outbox.take_messages().is_empty());
    }

    #[test]
    fn soft_limits_count_all_that_waits() {
        let limits = Arc::new(OutputLimits::default());
        limits.set([[0; 3], [0; 3], [0, 50, 0]]);
        for class in [Class::Normal, Class::Pubsub] {
            let outbox = Outbox::new(limits.clone());
            // A small message is being sent, and others wait.
            outbox.set_sending(10);
            (0..6).for_each(|_| outbox.add(&[0; 10]));
            assert!(!outbox.is_late(class), "for no longer than may be");
            let now = clock::now_ms();
            while clock::now_ms() < now + 2 {
                std::hint::spin_loop();
            }
            assert!(outbox.is_late(class), "{class:?}");
            // Once everything is sent, the time starts again.
            outbox.take_messages();
            outbox.note_sent();
            (0..5).for_each(|_| outbox.add(&[0; 12]));
            assert!(!outbox.is_ended());
        }
    }
}
