//! Errors of the interpreter as texts.

use crate::resp::ERROR_BYTES_MAX;

/// Returns the first line of an error that did not come from the server. A stack trace may follow it.
pub(crate) fn plain(error: &mlua::Error) -> String {
    let text: std::borrow::Cow<'_, str> = match error {
        mlua::Error::SyntaxError { message, .. } | mlua::Error::RuntimeError(message) => message.into(),
        mlua::Error::CallbackError { cause, .. } => return plain(cause),
        mlua::Error::MemoryError(_) => "not enough memory".into(),
        other => other.to_string().into(),
    };
    without_prelude(beginning(&text).lines().next().unwrap_or_default()).to_owned()
}

/// Returns the part of a text that an error shows.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

/// Returns a text without the line of the prelude that raised it.
pub(crate) fn without_prelude(text: &str) -> &str {
    let behind = text.strip_prefix("prelude:").and_then(|rest| rest.split_once(": "));
    behind.map_or(text, |(_, text)| text)
}
