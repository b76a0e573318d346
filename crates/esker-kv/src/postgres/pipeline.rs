//! Requests of one connection that are sent without waiting for the answers in between.
//!
//! A request of the client library is sent when its future is polled first. The functions here poll in order,
//! so that the server gets the requests in this order.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio_postgres::Error;

/// A request.
pub(super) type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A request that has failed.
pub(super) struct Failed {
    /// Its number in the pipeline.
    pub at: usize,
    /// Number of requests that were sent.
    pub sent: usize,
    pub error: Error,
}

/// Sends requests and waits for all answers. Ends with the first error: then requests that were not sent yet
/// stay so.
pub(super) async fn in_order<T: Unpin>(mut requests: Vec<Request<'_, T>>) -> Result<Vec<T>, Failed> {
    let mut answers: Vec<Option<T>> = requests.iter().map(|_| None).collect();
    let mut sent = 0;
    poll_fn(|context| {
        for (at, request) in requests.iter_mut().enumerate() {
            if answers[at].is_some() {
                continue;
            }
            sent = sent.max(at + 1);
            match request.as_mut().poll(context) {
                Poll::Ready(Ok(answer)) => answers[at] = Some(answer),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failed { at, sent, error })),
                Poll::Pending => {}
            }
        }
        match answers.iter().all(Option::is_some) {
            true => Poll::Ready(Ok(answers.iter_mut().filter_map(Option::take).collect())),
            false => Poll::Pending,
        }
    })
    .await
}

/// Sends two requests and waits for both answers.
pub(super) async fn both<A, B>(
    first: impl Future<Output = Result<A, Error>>,
    second: impl Future<Output = Result<B, Error>>,
) -> (Result<A, Error>, Result<B, Error>) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut a, mut b) = (None, None);
    poll_fn(|context| {
        if a.is_none() {
            a = ready(first.as_mut().poll(context));
        }
        if b.is_none() {
            b = ready(second.as_mut().poll(context));
        }
        match (a.take(), b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (left, right) => {
                (a, b) = (left, right);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Sends a request and does not wait for the answer.
pub(super) fn send<T>(request: impl Future<Output = Result<T, Error>>) {
    let _ = pin!(request).as_mut().poll(&mut Context::from_waker(Waker::noop()));
}
