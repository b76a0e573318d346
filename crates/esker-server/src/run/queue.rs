//! The queue of the sequencer: jobs, and other messages to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clients::Client;
use crate::resp::{Out, Request};
use crate::run::session::{ReplyMode, Session};

/// Maximum number of jobs per commit.
const JOBS_MAX: usize = 1024;
/// Number of conflicts with writes of the embedding program after which a job fails.
const CONFLICTS_MAX: usize = 1000;

/// Commands of one connection on their way through the sequencer, with the state of the connection.
pub struct Job {
    /// State of the connection.
    pub session: Session,
    /// The commands.
    pub requests: Vec<Request>,
    /// Number of commands that are done.
    pub done: usize,
    /// Number of commands whose replies have been sent.
    pub answered: usize,
    /// Replies to the commands.
    pub out: Out,
    /// The client's reply mode when the job was submitted.
    reply: ReplyMode,
    /// Number of runs whose commit conflicted with a write of the embedding program.
    conflicts: usize,
    /// Channel that returns the finished job to the connection.
    pub back: Option<oneshot::Sender<Box<Job>>>,
}

impl Job {
    /// Creates the job of a connection that has sent nothing yet.
    pub fn new(session: Session) -> Box<Self> {
        Box::new(Job {
            reply: session.reply,
            session,
            requests: Vec::new(),
            done: 0,
            answered: 0,
            out: Out::default(),
            conflicts: 0,
            back: None,
        })
    }

    /// Marks all commands as not done.
    pub fn begin(&mut self) {
        (self.done, self.answered) = (0, 0);
    }

    /// Prepares to run the job again after a conflict. Returns whether it may run again: no reply was sent,
    /// and each of its commands `is_plain`, that is, only reads and writes data.
    pub fn begin_again(&mut self, is_plain: impl Fn(&Request) -> bool) -> bool {
        let may = self.answered == 0
            && self.conflicts < CONFLICTS_MAX
            && self.session.multi.is_none()
            && self.requests[..self.done].iter().all(&is_plain);
        if may {
            self.conflicts += 1;
            self.done = 0;
            self.out.clear();
            self.session.reply = self.reply;
        }
        may
    }

    /// Takes the replies that were not sent yet, with their number and the client.
    pub fn take_replies(&mut self) -> Replies {
        let count = self.done - std::mem::replace(&mut self.answered, self.done);
        Replies { client: self.session.client.clone(), count, out: self.out.take() }
    }
}

/// Replies that are sent before the job returns.
pub struct Replies {
    pub client: Arc<Client>,
    pub count: usize,
    pub out: Out,
}

/// Why a job stops waiting without being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its timeout has passed, or `CLIENT UNBLOCK` ended the wait like a timeout.
    Timeout,
    /// `CLIENT UNBLOCK` made it fail.
    Unblocked,
    /// Its connection has ended.
    Gone,
    /// The server has become a replica.
    Demoted,
}

/// A message to the sequencer.
pub enum Message {
    Run(Box<Job>),
    Wake(Arc<Client>, Woken),
    Retry(u64),
    Filled(usize, Vec<u8>),
    Changes,
    EndWaits,
}

/// Sends jobs and other messages to the sequencer.
#[derive(Default)]
pub struct Sequencer {
    queue: Mutex<Vec<Message>>,
    /// Notified when there are messages.
    pub wake: Notify,
    /// Number of jobs that wait for keys. Relaxed: only the sequencer changes it, and commands that fill keys
    /// run there.
    pub waiting: AtomicUsize,
    /// Set if any change of its keys makes a waiting job retry. Relaxed, for the same reason.
    pub minds_changes: AtomicBool,
    /// Number of keys that jobs wait for, and number of keys whose every change makes a job retry. Relaxed:
    /// they are only shown.
    pub keys: [AtomicUsize; 2],
}

/// Makes the sequencer tell clients of changes of keys that they track.
struct Changes(Arc<Sequencer>);

impl Wake for Changes {
    fn wake(self: Arc<Self>) {
        self.0.push(Message::Changes);
    }
}

/// Makes the waiting command of a connection retry.
struct Retry {
    sequencer: Arc<Sequencer>,
    client: u64,
}

impl Wake for Retry {
    fn wake(self: Arc<Self>) {
        self.sequencer.retry(self.client);
    }
}

impl Sequencer {
    fn push(&self, message: Message) {
        let mut queue = self.queue.lock();
        queue.push(message);
        let is_first = queue.len() == 1;
        drop(queue);
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Submits a job. It returns through the receiver when it is done (sequencer.1).
    pub fn submit(&self, mut job: Box<Job>) -> oneshot::Receiver<Box<Job>> {
        let (sender, receiver) = oneshot::channel();
        job.back = Some(sender);
        (job.reply, job.conflicts) = (job.session.reply, 0);
        self.push(Message::Run(job));
        receiver
    }

    /// Submits a job again after its commit conflicted.
    pub fn run_again(&self, job: Box<Job>) {
        self.push(Message::Run(job));
    }

    /// Ends the wait of a connection, if it waits.
    pub fn end_wait(&self, client: &Arc<Client>, woken: Woken) {
        self.push(Message::Wake(client.clone(), woken));
    }

    /// Returns a waker that makes the waiting command of a connection retry.
    pub fn waker(self: &Arc<Self>, client: u64) -> Waker {
        Waker::from(Arc::new(Retry { sequencer: self.clone(), client }))
    }

    /// Returns a waker for changes of keys that clients track.
    pub fn changes_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Changes(self.clone())))
    }

    /// Makes the waiting command of a connection retry, if there is one.
    pub fn retry(&self, client: u64) {
        self.push(Message::Retry(client));
    }

    /// Ends the waits of all connections, because the server has become a replica.
    pub fn end_waits(&self) {
        self.push(Message::EndWaits);
    }

    /// Reports a key that was filled by a commit of a replica's primary.
    pub fn fill(&self, db: usize, key: Vec<u8>) {
        self.push(Message::Filled(db, key));
    }

    /// Returns whether a job waits for a key.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns whether any change of its keys makes a waiting command retry.
    #[inline]
    pub fn minds_changes(&self) -> bool {
        self.minds_changes.load(Ordering::Relaxed)
    }

    /// Returns the number of keys that jobs wait for, and of keys whose every change makes a job retry.
    pub fn waited_keys(&self) -> [usize; 2] {
        self.keys.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of waiting jobs.
    pub fn waiters(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Wakes the sequencer to look for work.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns the number of queued messages.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Takes the messages of the next commit, at most `JOBS_MAX`.
    pub fn take(&self) -> Vec<Message> {
        let mut queue = self.queue.lock();
        if queue.len() <= JOBS_MAX {
            // The next commit probably has as many.
            let next = Vec::with_capacity(queue.len());
            return std::mem::replace(&mut queue, next);
        }
        let rest = queue.split_off(JOBS_MAX);
        self.wake.notify_one();
        std::mem::replace(&mut queue, rest)
    }
}
