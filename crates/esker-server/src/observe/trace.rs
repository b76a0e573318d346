//! Spans and events of the server: see the option `--log` of the tool.
//!
//! ```text
//!   connection{client address}: command{client name}: ...      spans, at level debug
//!   refused, slow, failed, link                                events, at level warn
//!   flush, compaction, stall ...                               events of the engine, at level debug
//! ```
//!
//! Without the feature `tracing`, this compiles to nothing. With the feature but without a subscriber, a span
//! costs one comparison.

#[cfg(feature = "tracing")]
mod on {
    use tracing::span::EnteredSpan;
    use tracing::{Instrument, debug_span};

    use crate::clients::Client;

    /// Serves a connection in its span.
    pub async fn connection<T>(client: &Client, serve: impl Future<Output = T>) -> T {
        let span = debug_span!("connection", client = client.id, address = client.origin.address.as_str());
        serve.instrument(span).await
    }

    /// Enters the span of a command until the result is dropped.
    #[inline]
    pub fn command(client: &Client, name: &'static str) -> EnteredSpan {
        debug_span!("command", client = client.id, name).entered()
    }

    pub use esker::trace_event as engine;

    /// Reports something that operators should know.
    pub fn warn(what: &'static str, client: Option<&Client>, detail: &str) {
        tracing::warn!(client = client.map(|client| client.id), detail, "{what}");
    }

    /// Reports what the server does.
    pub fn info(what: &'static str, detail: &str) {
        tracing::info!(detail, "{what}");
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::clients::Client;

    /// Nothing.
    pub struct Nothing;

    pub async fn connection<T>(_: &Client, serve: impl Future<Output = T>) -> T {
        serve.await
    }

    #[inline]
    pub fn command(_: &Client, _: &'static str) -> Nothing {
        Nothing
    }

    /// Nothing.
    pub fn engine(_: &esker::Event) {}

    pub fn warn(_: &'static str, _: Option<&Client>, _: &str) {}

    pub fn info(_: &'static str, _: &str) {}
}

#[cfg(not(feature = "tracing"))]
pub use off::*;
#[cfg(feature = "tracing")]
pub use on::*;
