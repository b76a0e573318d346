//! A client of etcd over its HTTP gateway: a value with compare-and-put, and keys that end with a lease.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Connections to the members of a cluster.
#[derive(Debug)]
pub struct Etcd {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    /// The member that answered last. It is asked first, so a member that is cut off costs its time limit
    /// once. Relaxed: any value will do.
    answered: AtomicUsize,
}

/// A value, and the revision of its last change. Revision 0: there is none.
pub(super) struct Versioned {
    pub(super) value: Option<Vec<u8>>,
    pub(super) revision: i64,
}

/// A lease: its keys end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(i64);

impl Etcd {
    /// Takes addresses like `http://host:2379`. Nothing is sent yet.
    ///
    /// # Errors
    /// An address is not of this form.
    pub fn new(endpoints: &[String]) -> Result<Self, String> {
        if endpoints.is_empty() {
            return Err("give the address of etcd: --etcd http://HOST:2379".to_owned());
        }
        if let Some(other) = endpoints.iter().find(|endpoint| !endpoint.starts_with("http://")) {
            return Err(format!("the address of etcd has the form http://HOST:PORT, not {other}"));
        }
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
        let endpoints = endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_owned()).collect();
        Ok(Etcd { agent: config.into(), endpoints, answered: AtomicUsize::new(0) })
    }

    /// Sends a request to the first member that answers.
    fn call(&self, path: &str, request: &Value) -> Result<Value, String> {
        let mut last = String::new();
        let (len, first) = (self.endpoints.len(), self.answered.load(Ordering::Relaxed));
        for at in (first..first + len).map(|at| at % len) {
            let endpoint = &self.endpoints[at];
            let sent = self.agent.post(format!("{endpoint}/v3/{path}")).send(request.to_string().as_bytes());
            let body = sent.and_then(|mut answer| answer.body_mut().read_to_string());
            match body.map_err(|error| error.to_string()).and_then(|body| parse(&body)) {
                Ok(answer) => {
                    self.answered.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => last = format!("etcd at {endpoint}: {error}"),
            }
        }
        Err(last)
    }

    /// Returns a value.
    pub(super) fn get(&self, key: &str) -> Result<Versioned, String> {
        let answer = self.call("kv/range", &json!({ "key": BASE64.encode(key) }))?;
        versioned(&answer["kvs"][0])
    }

    /// Returns the values of all keys with a prefix.
    pub(super) fn prefix(&self, prefix: &str) -> Result<Vec<Vec<u8>>, String> {
        let mut end = prefix.as_bytes().to_vec();
        // The prefix ends with `/`, so its last byte has a successor.
        end.last_mut().into_iter().for_each(|byte| *byte += 1);
        let range = json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(end) });
        let answer = self.call("kv/range", &range)?;
        let found = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice).iter();
        found.map(|entry| Ok(versioned(entry)?.value.unwrap_or_default())).collect()
    }

    /// Puts a value if the last change of the key has this revision (0: there is no such key). Returns the
    /// new revision, or `None` if another change came first. After an error the outcome is unknown.
    pub(super) fn put_if(
        &self,
        key: &str,
        revision: i64,
        value: &[u8],
        lease: Option<Lease>,
    ) -> Result<Option<i64>, String> {
        let (name, value) = (BASE64.encode(key), BASE64.encode(value));
        let lease = lease.map_or(0, |lease| lease.0).to_string();
        let answer = self.call(
            "kv/txn",
            &json!({
                "compare": [{
                    "key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string(),
                }],
                "success": [{ "request_put": { "key": name, "value": value, "lease": lease } }],
            }),
        )?;
        match answer["succeeded"].as_bool() {
            Some(true) => number(&answer["header"]["revision"]).map(Some),
            _ => Ok(None),
        }
    }

    /// Begins a lease.
    pub(super) fn grant(&self, length: Duration) -> Result<Lease, String> {
        let seconds = length.as_secs().max(1).to_string();
        number(&self.call("lease/grant", &json!({ "TTL": seconds }))?["ID"]).map(Lease)
    }

    /// Extends a lease. Returns false if it has ended.
    pub(super) fn keep(&self, lease: Lease) -> Result<bool, String> {
        let answer = self.call("lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        Ok(number(&answer["result"]["TTL"]).unwrap_or(0) > 0)
    }

    /// Ends a lease.
    pub(super) fn revoke(&self, lease: Lease) -> Result<(), String> {
        self.call("lease/revoke", &json!({ "ID": lease.0.to_string() })).map(drop)
    }
}

fn parse(body: &str) -> Result<Value, String> {
    let answer: Value = serde_json::from_str(body.trim()).map_err(|error| format!("{error}: {body:.200}"))?;
    match answer.get("error") {
        Some(error) => Err(error.to_string()),
        None => Ok(answer),
    }
}

/// The gateway writes 64-bit numbers as strings.
fn number(value: &Value) -> Result<i64, String> {
    let parsed = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    parsed.ok_or_else(|| format!("etcd replied {value} where a number belongs"))
}

fn versioned(entry: &Value) -> Result<Versioned, String> {
    if entry.is_null() {
        return Ok(Versioned { value: None, revision: 0 });
    }
    let value = BASE64.decode(entry["value"].as_str().unwrap_or_default());
    let value = value.map_err(|error| format!("etcd replied a value that is not base64: {error}"))?;
    Ok(Versioned { value: Some(value), revision: number(&entry["mod_revision"])? })
}
