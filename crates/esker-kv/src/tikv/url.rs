//! The URLs of TiKV clusters.

use std::time::Duration;

use crate::{Error, Result};

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The PD servers.
    pub servers: Vec<String>,
    /// Files: the authority's certificate, the client's, and its key.
    pub tls: Option<[String; 3]>,
    pub keyspace: Option<String>,
    pub timeout: Duration,
}

fn invalid(url: &str, what: &str) -> Error {
    Error::Invalid(format!("{url:?} is no URL of a TiKV cluster: {what}"))
}

pub(super) fn parse(url: &str) -> Result<Location> {
    let rest = url.strip_prefix("tikv://").ok_or_else(|| invalid(url, "it begins with tikv://"))?;
    let (servers, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let servers: Vec<_> = servers.trim_end_matches('/').split(',').map(str::to_owned).collect();
    if servers.iter().any(|server| server.contains('/') || !server.contains(':')) {
        return Err(invalid(url, "it names PD servers with ports, separated by commas"));
    }
    let (mut tls, mut keyspace, mut timeout) = ([None, None, None], None, Duration::from_secs(10));
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "ca" => tls[0] = Some(value.to_owned()),
            "cert" => tls[1] = Some(value.to_owned()),
            "key" => tls[2] = Some(value.to_owned()),
            "keyspace" => keyspace = Some(value.to_owned()),
            "timeout_ms" => {
                let ms = value.parse().ok().filter(|ms| (1..=3_600_000).contains(ms));
                let ms = ms.ok_or_else(|| invalid(url, "timeout_ms is 1 to 3600000"))?;
                timeout = Duration::from_millis(ms);
            }
            _ => return Err(invalid(url, &format!("there is no parameter {name:?}"))),
        }
    }
    let tls = match tls {
        [None, None, None] => None,
        [Some(ca), Some(cert), Some(key)] => Some([ca, cert, key]),
        _ => return Err(invalid(url, "TLS needs ca, cert and key")),
    };
    Ok(Location { servers, tls, keyspace, timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let location = parse("tikv://a:1,b:2?ca=x&cert=y&key=z&keyspace=k&timeout_ms=5").unwrap();
        assert_eq!(location.servers, ["a:1", "b:2"]);
        assert_eq!(location.tls, Some(["x", "y", "z"].map(str::to_owned)));
        assert_eq!((location.keyspace.as_deref(), location.timeout.as_millis()), (Some("k"), 5));
        for bad in ["tikv://", "tikv://a", "tikv://a:1,", "tikv://a:1/b", "tikv://a:1?ca=x", "tikv://a:1?x=1"]
        {
            assert!(matches!(parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
