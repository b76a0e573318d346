//! Spans and events for those who look at what the server does: see the option `--log` of the tool.
//!
//! ```text
//!   connection{client address}: command{client name}: ...      spans, at level debug
//!   refused, slow, failed, link                                events, from warnings on
//! ```
//!
//! server_trace.1. Without the feature `tracing` nothing of it is there. With it, and nobody who listens, a span costs a comparison.

#[cfg(feature = "tracing")]
mod on {
    use tracing::span::EnteredSpan;
    use tracing::{Instrument, debug_span};

    use crate::clients::Client;

    /// Runs what serves a connection inside of its span.
    pub async fn connection<T>(client: &Client, serve: impl Future<Output = T>) -> T {
        let span = debug_span!("connection", client = client.id, address = client.address.as_str());
        serve.instrument(span).await
    }

    /// A command runs until this is dropped.
    #[inline]
    pub fn command(client: &Client, name: &'static str) -> EnteredSpan {
        debug_span!("command", client = client.id, name).entered()
    }

    /// Something that operators should know of.
    pub fn warn(what: &'static str, client: Option<&Client>, detail: &str) {
        tracing::warn!(client = client.map(|client| client.id), detail, "{what}");
    }

    /// Something that shows what the server does.
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

    pub fn warn(_: &'static str, _: Option<&Client>, _: &str) {}

    pub fn info(_: &'static str, _: &str) {}
}

#[cfg(not(feature = "tracing"))]
pub use off::*;
#[cfg(feature = "tracing")]
pub use on::*;
