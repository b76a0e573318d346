//! Shows the output of the shell page by page.
//!
//! ```text
//!   command --bytes--> Standard --as much as fits--> terminal
//!                         `--page full--> prompt --> continue | stop: as if the reader had closed the output
//! ```
//!
//! A page has no more lines than the terminal, counting wrapped lines.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use rustyline::DefaultEditor;

thread_local! {
    static PAGE: RefCell<Option<Page>> = const { RefCell::new(None) };
}

/// The page on the screen.
#[derive(Debug)]
struct Page {
    rows: usize,
    columns: usize,
    /// Rows and columns in use.
    row: usize,
    column: usize,
    /// The user wants no more output.
    stopped: bool,
    waited: Duration,
}

/// How the output of a command ended.
#[derive(Debug, Default)]
pub(crate) struct Paged {
    /// Whether the user stopped the output.
    pub(crate) stopped: bool,
    /// How long the command waited for the user.
    pub(crate) waited: Duration,
}

/// Starts paging standard output.
pub(crate) fn begin(columns: usize, rows: usize) {
    let page = Page {
        // The last row is for the prompt.
        rows: rows.saturating_sub(1).max(1),
        columns: columns.max(1),
        row: 0,
        column: 0,
        stopped: false,
        waited: Duration::ZERO,
    };
    PAGE.set(Some(page));
}

/// Stops paging.
pub(crate) fn end() -> Paged {
    PAGE.take().map_or_else(Paged::default, |page| Paged { stopped: page.stopped, waited: page.waited })
}

/// Returns how many of the bytes may be written, or `None` if the user wants no more. Calls `flush` before
/// prompting.
pub(crate) fn admit(bytes: &[u8], flush: impl FnOnce()) -> Option<usize> {
    PAGE.with_borrow_mut(|page| match page {
        None => Some(bytes.len()),
        Some(page) => page.admit(bytes, || {
            flush();
            wants_more()
        }),
    })
}

impl Page {
    fn admit(&mut self, bytes: &[u8], wants_more: impl FnOnce() -> bool) -> Option<usize> {
        if self.row >= self.rows && !bytes.is_empty() && !self.stopped {
            let start = Instant::now();
            self.stopped = !wants_more();
            self.waited += start.elapsed();
            self.row = 0;
        }
        (!self.stopped).then(|| self.fit(bytes))
    }

    /// Returns how many of the bytes fit on the page.
    fn fit(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            if self.row >= self.rows {
                return at;
            }
            match byte {
                b'\n' => (self.row, self.column) = (self.row + 1, 0),
                // A continuation byte of a character.
                0x80..=0xBF => {}
                _ if self.column == self.columns => (self.row, self.column) = (self.row + 1, 1),
                _ => self.column += 1,
            }
        }
        bytes.len()
    }
}

/// Prompts the user. A prompt that cannot be shown counts as stop.
fn wants_more() -> bool {
    let answer =
        DefaultEditor::new().and_then(|mut editor| editor.readline("-- Enter for more, q to stop -- "));
    answer.is_ok_and(|answer| !answer.trim().starts_with(['q', 'Q', 'n', 'N']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text into pages of a terminal with 5 columns and 4 rows, including one for the prompt.
    fn pages(text: &str, pages_wanted: usize) -> Vec<String> {
        begin(5, 4);
        let mut page = PAGE.take().unwrap();
        let mut pages = vec![String::new()];
        let mut rest = text;
        while !rest.is_empty() {
            let mut asked = false;
            let wanted = pages.len() < pages_wanted;
            let Some(length) = page.admit(rest.as_bytes(), || {
                asked = true;
                wanted
            }) else {
                break;
            };
            if asked {
                pages.push(String::new());
            }
            pages.last_mut().unwrap().push_str(&rest[..length]);
            rest = &rest[length..];
        }
        pages
    }

    #[test]
    fn a_page_fits_on_the_screen() {
        assert_eq!(pages("a\nb\nc\n", 9), ["a\nb\nc\n"]);
        assert_eq!(pages("a\nb\nc\nd\n", 9), ["a\nb\nc\n", "d\n"]);
        assert_eq!(pages("a\nb\nc\nd\ne\nf\ng", 2), ["a\nb\nc\n", "d\ne\nf\n"]);
        assert_eq!(pages("12345\n123456\nb\n", 9), ["12345\n123456\n", "b\n"], "a line wraps");
        assert_eq!(pages("\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\nb\nc\nd", 9).len(), 2, "characters, not bytes");
    }
}
