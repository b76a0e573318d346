//! Requests of an engine that commits for callers which do not wait: few threads keep all in flight.
//!
//! ```text
//! thread 1 or 2: its share of the requests in flight, oldest first --poll--> done: recorded, the next begins
//!                `--nothing is done: parks <--wakes-- the engine
//! ```
//!
//! Such an engine makes commits in the order in which they began. So only the oldest is polled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use esker_bench_api::{Committing, Failure, Result, Store};

use super::source::Pair;

/// Number of threads that begin requests.
pub(super) const THREADS: u64 = 2;
/// Fewer requests in flight are made by a thread each.
pub(super) const IN_FLIGHT_MIN: u64 = 16;

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A request in flight.
struct InFlight {
    pairs: Vec<Pair>,
    begun: Instant,
    committing: Committing,
}

/// Keeps `in_flight` requests in flight until `take` returns none. Passes each to `done` when it has ended.
pub(super) fn keep(
    store: &dyn Store,
    in_flight: u64,
    take: impl Fn(Vec<Pair>) -> Result<Vec<Pair>>,
    mut done: impl FnMut(&[Pair], Instant, Instant),
) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let (mut requests, mut is_ended) = (VecDeque::new(), false);
    let mut unused = Vec::new();
    loop {
        while !is_ended && (requests.len() as u64) < in_flight {
            let pairs = take(unused.pop().unwrap_or_default())?;
            is_ended = pairs.is_empty();
            if !is_ended {
                let begun = Instant::now();
                let committing = begin(store, &pairs)?;
                requests.push_back(InFlight { pairs, begun, committing });
            }
        }
        let Some(oldest) = requests.front_mut() else { return Ok(()) };
        let Poll::Ready(committed) = oldest.committing.as_mut().poll(&mut context) else {
            thread::park();
            continue;
        };
        if committed? {
            let request = requests.pop_front().expect("it was polled");
            done(&request.pairs, request.begun, Instant::now());
            unused.push(request.pairs);
        } else {
            // After a conflict, the transaction runs again.
            oldest.committing = begin(store, &oldest.pairs)?;
        }
    }
}

/// Begins the commit of the pairs in one transaction.
fn begin(store: &dyn Store, pairs: &[Pair]) -> Result<Committing> {
    let put = &mut |writer: &mut dyn esker_bench_api::Writer| {
        pairs.iter().try_for_each(|pair| writer.put(&pair.key, &pair.value))
    };
    store.begin_write(put)?.ok_or_else(|| Failure::engine("it commits for no callers that do not wait"))
}
