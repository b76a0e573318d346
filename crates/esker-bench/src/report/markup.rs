//! Small helpers to write HTML.

/// Appends formatted text to a `String`.
macro_rules! push {
    ($out:expr, $($text:tt)*) => {
        std::fmt::Write::write_fmt($out, format_args!($($text)*)).expect("writing to a String cannot fail")
    };
}
pub(super) use push;

/// Escapes text for use between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the anchor of a row on the page.
pub(super) fn place(suite: &str, row: &str) -> String {
    let name = format!("{suite}--{row}");
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
