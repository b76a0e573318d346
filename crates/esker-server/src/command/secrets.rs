//! Finds the passwords in a request. The slow log and `MONITOR` do not show them.

use crate::resp::Request;

/// Replacement for a password.
pub const REDACTED: &[u8] = b"(redacted)";
/// Options whose values are passwords, or user names that belong to them.
const SECRET_OPTIONS: [&str; 7] = [
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "requirepass",
    "tls-client-key-file-pass",
    "tls-key-file-pass",
];

/// All arguments.
pub fn all(request: &Request) -> Vec<usize> {
    (1..request.len()).collect()
}

/// The name and the password after the word `AUTH`.
pub fn behind_auth(request: &Request) -> Vec<usize> {
    (1..request.len()).find(|at| request.is(*at, "auth")).map_or(Vec::new(), |at| vec![at + 1, at + 2])
}

/// The arguments of subcommands that take rules of users.
pub fn users(request: &Request) -> Vec<usize> {
    match ["setuser", "getuser", "deluser"].iter().any(|sub| request.is(1, sub)) {
        true => (2..request.len()).collect(),
        false => Vec::new(),
    }
}

/// Returns whether the value of an option is a password, or belongs to one.
pub fn is_secret_option(name: &str) -> bool {
    SECRET_OPTIONS.contains(&name)
}

/// The values of secret options after the word `SET`.
pub fn options(request: &Request) -> Vec<usize> {
    let is_secret = |at: &usize| SECRET_OPTIONS.iter().any(|name| request.is(*at, name));
    match request.is(1, "set") {
        true => (2..request.len()).step_by(2).filter(is_secret).map(|at| at + 1).collect(),
        false => Vec::new(),
    }
}

/// User of clients that give only a password.
const DEFAULT: &[u8] = b"default";

/// The user and the password of `AUTH`.
pub fn auth(request: &Request) -> Option<(&[u8], &[u8])> {
    match request.len() {
        2 => Some((DEFAULT, &request[1])),
        3 => Some((&request[1], &request[2])),
        _ => None,
    }
}

/// The user and the password of `HELLO`.
pub fn hello(request: &Request) -> Option<(&[u8], &[u8])> {
    let mut at = 2;
    while request.is(at, "setname") {
        at += 2;
    }
    request.is(at, "auth").then_some((request.get(at + 1)?, request.get(at + 2)?))
}
