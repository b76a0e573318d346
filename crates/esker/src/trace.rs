//! Events as events of the crate `tracing`.

use crate::engine::base::event::Event;
use crate::engine::base::health::Health;

/// Passes an event on to the subscriber of the crate `tracing`, with the target `esker`. Failures, missed
/// events, slow operations and a database that is not well have the level `warn`, openings `info`,
/// all others `debug`.
///
/// ```
/// let db = esker::Db::builder().on_event(esker::trace_event).open_in_memory()?;
/// # Ok::<(), esker::Error>(())
/// ```
pub fn trace_event(event: &Event) {
    let ms = event.time().map(|time| time.as_secs_f64() * 1e3);
    let (name, is_well) = (event.name(), event.error().is_none());
    match event {
        Event::Health(Health::Ok | Health::Closed) | Event::Opening { .. } | Event::Opened { .. } => {
            tracing::info!(target: "esker", name, ms, "{event}");
        }
        Event::Health(_) | Event::Missed { .. } | Event::Slow(_) => {
            tracing::warn!(target: "esker", name, ms, "{event}")
        }
        _ if is_well => tracing::debug!(target: "esker", name, ms, "{event}"),
        _ => tracing::warn!(target: "esker", name, ms, "{event}"),
    }
}
