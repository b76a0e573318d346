//! The log of `esker serve` on standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::failure::{Failure, Result};

/// The form of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// What is logged, and how.
#[derive(Debug, Args)]
pub(in crate::commands) struct LogArgs {
    /// Log to standard error: `warn`, `debug`, `off`, or any filter of the crate tracing-subscriber
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "ESKER_LOG")]
    log: String,
    /// Form of the log
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: Form,
}

impl LogArgs {
    /// Returns the filter.
    pub(super) fn filter(&self) -> Result<EnvFilter> {
        let filter = if self.log.is_empty() { "warn" } else { &self.log };
        EnvFilter::try_new(filter).map_err(|error| {
            Failure::message(format!("--log {filter}: {error}; use for example warn, or esker_server=debug"))
        })
    }
}

/// Starts to write the log.
pub(in crate::commands) fn start(args: &LogArgs) -> Result<()> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(args.filter()?)
        .with_span_events(FmtSpan::CLOSE)
        // Otherwise an error of the log is reported on standard error: if that is closed, the thread panics.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let started = match args.log_format {
        Form::Text => log.try_init(),
        Form::Json => log.json().try_init(),
    };
    started.map_err(|error| Failure::message(error.to_string()))
}
