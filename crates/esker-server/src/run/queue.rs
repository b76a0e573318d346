//! The way to the sequencer: jobs, and what else is asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clients::Client;
use crate::resp::{Out, Request};
use crate::run::session::{ReplyMode, Session};

/// So many jobs share a commit at the most.
const JOBS_MAX: usize = 1024;
/// A job fails after this many conflicts with writes of the embedding program.
const CONFLICTS_MAX: usize = 1000;

/// Commands of one connection, on their way. What the connection is goes with them.
pub struct Job {
    /// What the connection is.
    pub session: Session,
    /// The commands.
    pub requests: Vec<Request>,
    /// How many of them are done.
    pub done: usize,
    /// To how many of them the replies have been sent (sequencer.4).
    pub answered: usize,
    /// Replies to them.
    pub out: Out,
    /// The client's reply mode when the job was submitted.
    reply: ReplyMode,
    /// Number of runs whose commit conflicted with a write of the embedding program.
    conflicts: usize,
    /// Where it goes when it is done.
    pub back: Option<oneshot::Sender<Box<Job>>>,
}

impl Job {
    /// Of a connection that has sent nothing yet.
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

    /// Whether all of it is still to do.
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
            self.out.bytes.clear();
            self.session.reply = self.reply;
        }
        may
    }

    /// Takes the replies that were not sent yet, to how many commands they are, and who gets them.
    pub fn take_replies(&mut self) -> Replies {
        let count = self.done - std::mem::replace(&mut self.answered, self.done);
        Replies { client: self.session.client.clone(), count, out: self.out.take() }
    }
}

/// Replies that are sent before their job comes back.
pub struct Replies {
    pub client: Arc<Client>,
    pub count: usize,
    pub out: Out,
}

/// Why a job waits no more, if not because it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its time is over, or somebody has said so.
    Timeout,
    /// Somebody wants it to fail.
    Unblocked,
    /// Its connection is gone.
    Gone,
    /// The server has become a replica.
    Demoted,
}

/// What is asked of the sequencer.
pub enum Message {
    Run(Box<Job>),
    Wake(Arc<Client>, Woken),
    Retry(u64),
    Filled(usize, Vec<u8>),
    EndWaits,
}

/// The way in.
#[derive(Default)]
pub struct Sequencer {
    queue: Mutex<Vec<Message>>,
    /// There is something to do.
    pub wake: Notify,
    /// How many jobs wait for keys. Relaxed: only the sequencer changes it, and what fills keys runs there.
    pub waiting: AtomicUsize,
    /// Whether one of them is tried again after any change of its keys. Relaxed, for the same reason.
    pub minds_changes: AtomicBool,
    /// How many keys are waited for, and of how many changes are minded. Relaxed: they are figures.
    pub keys: [AtomicUsize; 2],
}

/// Makes the waiting command of a connection run again.
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

    /// Takes a job. It comes back when it is done (sequencer.1).
    pub fn submit(&self, mut job: Box<Job>) -> oneshot::Receiver<Box<Job>> {
        let (sender, receiver) = oneshot::channel();
        job.back = Some(sender);
        (job.reply, job.conflicts) = (job.session.reply, 0);
        self.push(Message::Run(job));
        receiver
    }

    /// Submits a job again whose commit conflicted.
    pub fn run_again(&self, job: Box<Job>) {
        self.push(Message::Run(job));
    }

    /// Ends the waiting of a connection, if it waits.
    pub fn end_wait(&self, client: &Arc<Client>, woken: Woken) {
        self.push(Message::Wake(client.clone(), woken));
    }

    /// Returns a waker that makes the waiting command of a connection run again.
    pub fn waker(self: &Arc<Self>, client: u64) -> Waker {
        Waker::from(Arc::new(Retry { sequencer: self.clone(), client }))
    }

    /// Makes the waiting command of a connection run again, if one waits.
    pub fn retry(&self, client: u64) {
        self.push(Message::Retry(client));
    }

    /// Ends the waiting of all connections: the server has become a replica.
    pub fn end_waits(&self) {
        self.push(Message::EndWaits);
    }

    /// Somebody else has filled a key: a replica's primary.
    pub fn fill(&self, db: usize, key: Vec<u8>) {
        self.push(Message::Filled(db, key));
    }

    /// Whether anybody waits for a key.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a waiting command has to be tried again after any change of its keys.
    #[inline]
    pub fn minds_changes(&self) -> bool {
        self.minds_changes.load(Ordering::Relaxed)
    }

    /// How many keys are waited for, and of how many changes are minded.
    pub fn waited_keys(&self) -> [usize; 2] {
        self.keys.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// How many wait.
    pub fn waiters(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Has it look whether there is something to do.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Takes the messages of the next commit.
    pub fn take(&self) -> Vec<Message> {
        let mut queue = self.queue.lock();
        if queue.len() <= JOBS_MAX {
            return std::mem::take(&mut queue);
        }
        let rest = queue.split_off(JOBS_MAX);
        self.wake.notify_one();
        std::mem::replace(&mut queue, rest)
    }
}
