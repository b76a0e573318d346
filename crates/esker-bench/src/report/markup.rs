//! Small helpers to write HTML.

use std::fmt::Write as _;

/// Appends formatted text.
pub(super) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

/// Escapes text for use between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the anchor of a row on the page.
pub(super) fn place(suite: &str, row: &str) -> String {
    let name = format!("{suite}--{row}");
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
