//! Changes as `POST` requests of JSON lines.
//!
//! ```text
//!   POST URL   Idempotency-Key: ID OF THE FIRST CHANGE/ID OF THE LAST   Esker-Position: HISTORY:COMMIT
//!   2xx: confirmed    5xx, 408, 429, no answer: again    others: stop, with the answer
//! ```
//!
//! A repeated request of one run has the same key and body. After a kill, batches may be cut differently.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;

use super::super::change::Batch;
use super::super::source::{Tried, Trouble};
use super::{FeedSink, Settings};
use crate::failure::{Failure, Result};
use crate::text::shown;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an answer that a message shows.
const ANSWER_BYTES_MAX: u64 = 1 << 10;

/// A URL that takes requests.
pub(super) struct Http {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
}

impl Http {
    pub(super) fn open(url: &str, mut settings: Settings) -> Result<Self> {
        if url.starts_with("https:") && !cfg!(feature = "tls") {
            return Err(Failure::message(
                "this tool was built without the feature `tls`, which https needs: build it with `--features tls`",
            ));
        }
        let headers = settings.take_all("header").iter().map(|text| header(text)).collect::<Result<_>>()?;
        let timeout = settings.take_seconds("timeout", TIMEOUT)?;
        settings.finish("http", "header=NAME: VALUE and timeout=SECONDS")?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(timeout))
            .user_agent(concat!("esker/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Http { agent: config.into(), url: url.to_owned(), headers })
    }
}

/// Parses `NAME: VALUE`. An error does not show the value, which may be a password.
fn header(text: &str) -> Result<(String, String)> {
    let wrong = || Failure::message("the setting header has the form NAME: VALUE");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_visible = |byte: u8| (b' '..0x7f).contains(&byte);
    match !name.is_empty() && name.bytes().all(is_token) && value.bytes().all(is_visible) {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err(wrong()),
    }
}

impl FeedSink for Http {
    fn deliver(&mut self, batch: &Batch) -> Tried<()> {
        let (Some(first), Some(last)) = (batch.changes.first(), batch.changes.last()) else { return Ok(()) };
        let mut request = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/x-ndjson")
            .header("Idempotency-Key", format!("\"{}/{}\"", first.id(), last.id()))
            .header("Esker-Position", last.at.to_string());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        // A query may hold a password.
        let url = shown(self.url.split('?').next().unwrap_or_default());
        let mut answer = match request.send(&batch.lines()[..]) {
            Ok(answer) => answer,
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::RedirectFailed)) => {
                return Err(Trouble::stop(format!("{url}: {}", shown(error))));
            }
            Err(error) => return Err(Trouble::Retry(format!("{url}: {}", shown(error)))),
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let mut text = Vec::new();
        // The status alone decides.
        let _partial = answer.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        let said = format!("{url}: {status} {}", shown(String::from_utf8_lossy(text.trim_ascii())));
        Err(match status.is_server_error() || [408, 429].contains(&status.as_u16()) {
            true => Trouble::Retry(said),
            false => Trouble::stop(format!(
                "{said}\n  the batch from {} on was refused; nothing behind it was sent",
                first.at
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_before_anything_is_sent() {
        assert_eq!(header("A-b: c: d ").unwrap(), ("A-b".to_owned(), "c: d".to_owned()));
        for wrong in ["", "a", ": b", "a b: c", "a: b\nc: d", "a: \u{e4}"] {
            let failure = header(wrong).unwrap_err().to_string();
            assert!(failure.contains("NAME: VALUE"), "{failure}");
        }
    }
}
