//! Outcomes of calls that waited, on their way to JavaScript.
//!
//! ```text
//!   threads --push--> list of (number, outcome) --one signal--> JavaScript --take--> its promises
//! ```
//!
//! completion.1. A signal is sent when the list stops being empty, and `take` empties it. So each outcome is
//!     taken, and outcomes that arrive together cost one call into JavaScript.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use esker::Value;
use napi::Status;
use napi::bindgen_prelude::{
    Array, BigInt, BufferSlice, Env, Function, JsValue, Null, Object, ToNapiValue, Undefined, Unknown,
};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::chunk::Chunk;
use crate::error::{Failure, caught};

/// The result of a call.
pub(crate) enum Outcome {
    Nothing,
    Bool(bool),
    Bools(Vec<bool>),
    Number(f64),
    Int(i64),
    Value(Option<Value>),
    Entry(Option<(Vec<u8>, Value)>),
    Swap {
        swapped: bool,
        old: Option<Value>,
    },
    Chunk(Chunk),
    /// What this function makes.
    Made(Box<Make>),
}

/// Makes an object in the JavaScript thread.
type Make = dyn for<'env> FnOnce(&'env Env) -> napi::Result<Unknown<'env>> + Send;

pub(crate) type Result = std::result::Result<Outcome, Failure>;

/// Copies bytes into a buffer of JavaScript.
pub(crate) fn buffer<'env>(env: &'env Env, bytes: &[u8]) -> napi::Result<Unknown<'env>> {
    Ok(BufferSlice::copy_from(env, bytes)?.to_unknown())
}

/// A value that is missing is `undefined`.
pub(crate) fn value<'env>(env: &'env Env, value: Option<&Value>) -> napi::Result<Unknown<'env>> {
    match value {
        Some(value) => buffer(env, value),
        None => ().into_unknown(env),
    }
}

impl Outcome {
    /// An object that `make` makes.
    pub(crate) fn made(
        make: impl for<'env> FnOnce(&'env Env) -> napi::Result<Unknown<'env>> + Send + 'static,
    ) -> Outcome {
        Outcome::Made(Box::new(make))
    }

    pub(crate) fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        match self {
            Outcome::Nothing | Outcome::Entry(None) => {
                let nothing: Undefined = ();
                nothing.into_unknown(env)
            }
            Outcome::Bool(yes) => yes.into_unknown(env),
            Outcome::Bools(all) => all.into_unknown(env),
            Outcome::Number(number) => number.into_unknown(env),
            Outcome::Int(number) => BigInt::from(number).into_unknown(env),
            Outcome::Value(found) => value(env, found.as_ref()),
            Outcome::Entry(Some((key, found))) => {
                let mut entry = env.create_array(2)?;
                entry.set(0, buffer(env, &key)?)?;
                entry.set(1, buffer(env, &found)?)?;
                Ok(entry.to_unknown())
            }
            Outcome::Swap { swapped, old } => {
                let mut swap = Object::new(env)?;
                swap.set("swapped", swapped)?;
                swap.set("old", value(env, old.as_ref())?)?;
                Ok(swap.to_unknown())
            }
            Outcome::Chunk(chunk) => chunk.into_js(env),
            Outcome::Made(make) => make(env),
        }
    }
}

/// Calls a function of JavaScript without arguments. It does not keep the process alive: lib/native.js does,
/// while promises are pending.
type Signal = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The outcomes of the calls of one JavaScript thread.
pub(crate) struct Completions {
    ready: Mutex<Vec<(u32, Result)>>,
    signal: Signal,
}

impl Completions {
    pub(crate) fn push(&self, number: u32, outcome: Result) {
        let mut ready = self.ready.lock();
        ready.push((number, outcome));
        // completion.1
        if ready.len() == 1 {
            drop(ready);
            // Fails only when the JavaScript thread has ended.
            self.signal.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Runs a body and pushes its outcome.
    pub(crate) fn finish(&self, number: u32, body: impl FnOnce() -> Result) {
        self.push(number, caught(body));
    }
}

/// The calls of a JavaScript thread that are not done.
#[napi]
pub struct Loop {
    pub(crate) done: Arc<Completions>,
}

#[napi]
impl Loop {
    /// `notify` is called when there are outcomes to take.
    #[napi(constructor)]
    pub fn new(notify: Function<'_, (), ()>) -> napi::Result<Loop> {
        let signal = notify.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Loop { done: Arc::new(Completions { ready: Mutex::default(), signal }) })
    }

    /// Returns the outcomes: for each its number, whether it is an error, and the result or error.
    #[napi(catch_unwind)]
    pub fn take<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let ready = std::mem::take(&mut *self.done.ready.lock());
        let mut all = env.create_array(0)?;
        for (number, outcome) in ready {
            let outcome = outcome.and_then(|outcome| {
                outcome.into_js(env).map_err(|error| Failure::invalid(error.to_string()))
            });
            all.insert(number)?;
            all.insert(outcome.is_err())?;
            match outcome {
                Ok(result) => all.insert(result)?,
                Err(failure) => all.insert(failure.to_js(env)?)?,
            }
        }
        Ok(all)
    }
}

/// A future whose outcome goes to JavaScript. Its own wake-ups poll it, in the thread that wakes it.
struct Driven {
    number: u32,
    done: Arc<Completions>,
    future: Mutex<Option<BoxFuture>>,
}

pub(crate) type BoxFuture = Pin<Box<dyn Future<Output = Result> + Send>>;

impl Driven {
    fn poll(self: &Arc<Self>) {
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            *slot = None;
            drop(slot);
            self.done.push(self.number, outcome);
        }
    }
}

impl Wake for Driven {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Returns the outcome of a future, if it is there. Otherwise has the future proceed by itself, and pushes
/// its outcome.
pub(crate) fn drive(done: Arc<Completions>, number: u32, mut future: BoxFuture) -> Option<Result> {
    if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Some(outcome);
    }
    Arc::new(Driven { number, done, future: Mutex::new(Some(future)) }).poll();
    None
}

/// What a call returns: its result, or `null` if that arrives later under the number of the call.
pub(crate) fn returned(env: &Env, outcome: Option<Result>) -> napi::Result<Unknown<'_>> {
    match outcome {
        Some(Ok(outcome)) => outcome.into_js(env),
        Some(Err(why)) => Err(why.thrown(env)),
        None => Null.into_unknown(env),
    }
}
