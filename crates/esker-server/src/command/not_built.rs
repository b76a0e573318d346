//! Commands of Redis that this server does not have. The error reply suggests alternatives.

/// Prefixes of their names, and advice.
const NOT_BUILT: &[(&str, &str)] = &[
    ("asking", "there is no cluster mode"),
    ("bf.", "modules are not supported"),
    ("cf.", "modules are not supported"),
    ("ft.", "modules are not supported"),
    ("json.", "modules are not supported"),
    ("migrate", "use DUMP and RESTORE"),
    ("pfdebug", "it is for tests of Redis"),
    ("readonly", "there is no cluster mode"),
    ("readwrite", "there is no cluster mode"),
    ("sentinel", "this is no sentinel"),
    ("ts.", "modules are not supported"),
    ("vadd", "there are no vector sets"),
    ("vsim", "there are no vector sets"),
];

/// Returns the error reply for such a command.
pub fn why(name: &[u8]) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let (_, advice) = NOT_BUILT.iter().find(|(begin, _)| lower.starts_with(begin.as_bytes()))?;
    let shown = String::from_utf8_lossy(&name[..name.len().min(64)]).to_uppercase();
    Some(format!("ERR {shown} is not supported by this server: {advice}"))
}
