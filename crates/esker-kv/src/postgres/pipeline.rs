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
#[derive(Debug)]
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
    let (mut sent, mut end) = (0, requests.len());
    let mut failed = None;
    poll_fn(|context| {
        let mut at = 0;
        while at < end {
            sent = sent.max(at + 1);
            if answers[at].is_none() {
                match requests[at].as_mut().poll(context) {
                    Poll::Ready(Ok(answer)) => answers[at] = Some(answer),
                    Poll::Ready(Err(error)) => {
                        // An earlier request may have failed since it was polled, and this one because of it.
                        failed = Some((at, error));
                        (at, end) = (0, at);
                        continue;
                    }
                    Poll::Pending => {}
                }
            }
            at += 1;
        }
        if let Some((at, error)) = failed.take() {
            return Poll::Ready(Err(Failed { at, sent, error }));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that has failed once it is polled for the n-th time.
    fn failing(polls: usize) -> Request<'static, ()> {
        let mut polled = 0;
        Box::pin(poll_fn(move |_| {
            polled += 1;
            let error = || "no-such-key=1".parse::<tokio_postgres::Config>().unwrap_err();
            if polled < polls { Poll::Pending } else { Poll::Ready(Err(error())) }
        }))
    }

    #[test]
    fn the_first_request_that_fails_is_reported_and_later_ones_are_not_sent() {
        let requests = vec![failing(9), failing(2), failing(1), failing(1)];
        let failed = pollster::block_on(in_order(requests)).unwrap_err();
        assert_eq!((failed.at, failed.sent), (1, 3));
    }
}
