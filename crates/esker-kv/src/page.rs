//! Ranges are read in pages, bounded by bytes: one answer of a store over a network has a limit.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::kv::Reads;
use crate::{Order, Result, Space, Span};

/// Bytes of keys and values in a page, unless asked for otherwise.
pub const PAGE_BYTES: usize = 1 << 20;

/// Which entries of a space to read.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The range of keys.
    pub span: Span<'a>,
    /// The direction.
    pub order: Order,
    /// Maximum number of entries. At least 1.
    pub entries_max: usize,
    /// The page ends with the entry by which its keys and values reach this number of bytes.
    pub bytes_max: usize,
}

impl<'a> Query<'a> {
    /// Returns the query for a range, smallest key first, in pages of [`PAGE_BYTES`].
    pub fn new(span: Span<'a>) -> Self {
        Query { span, order: Order::Up, entries_max: usize::MAX, bytes_max: PAGE_BYTES }
    }

    /// Returns the query with another direction.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Query { order, ..self }
    }

    /// Returns the query with a maximum number of entries.
    #[must_use]
    pub fn entries(self, entries_max: usize) -> Self {
        Query { entries_max: entries_max.max(1), ..self }
    }

    /// Returns the query with pages of another size.
    #[must_use]
    pub fn bytes(self, bytes_max: usize) -> Self {
        Query { bytes_max, ..self }
    }
}

/// A key and its value.
pub type Entry = (Bytes, Bytes);

/// Entries in the order of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries. Empty only if the range has none.
    pub entries: Vec<Entry>,
    /// Whether the range may have entries behind these: ask again behind the last key.
    pub has_more: bool,
}

/// Fills a page up to the limits of a query.
#[derive(Debug)]
pub struct PageBuilder {
    page: Page,
    entries_left: usize,
    bytes_left: usize,
}

impl PageBuilder {
    /// Creates an empty page.
    pub fn new(query: &Query<'_>) -> Self {
        let (entries_left, bytes_left) = (query.entries_max.max(1), query.bytes_max.max(1));
        PageBuilder { page: Page::default(), entries_left, bytes_left }
    }

    /// Adds an entry. Returns whether the page is full.
    pub fn push(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> bool {
        let (key, value) = (key.into(), value.into());
        self.entries_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(key.len() + value.len());
        self.page.entries.push((key, value));
        self.is_full()
    }

    /// Returns whether no entry may follow.
    pub fn is_full(&self) -> bool {
        self.entries_left == 0 || self.bytes_left == 0
    }

    /// Returns the page. A page that is not full is the last one.
    pub fn finish(mut self) -> Page {
        self.page.has_more = self.is_full();
        self.page
    }
}

/// Calls `visit` with each entry of a range, until it returns `Break`. Reads page by page: outside snapshots
/// and transactions, each page may be of a later state.
///
/// # Errors
/// Those of [`Reads::page`].
pub fn visit(
    reads: &(impl Reads + ?Sized),
    space: &Space,
    query: Query<'_>,
    visit: &mut dyn FnMut(&Bytes, &Bytes) -> ControlFlow<()>,
) -> Result<()> {
    let mut last: Option<Bytes> = None;
    let mut left = query.entries_max;
    loop {
        let span = match &last {
            Some(key) => query.span.behind(key, query.order),
            None => query.span,
        };
        let page = reads.page(space, Query { span, entries_max: left, ..query })?;
        for (key, value) in &page.entries {
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
        left -= page.entries.len().min(left);
        last = page.entries.last().map(|(key, _)| key.clone());
        if !page.has_more || left == 0 || last.is_none() {
            return Ok(());
        }
    }
}

/// Returns all entries of a range.
///
/// # Errors
/// Those of [`Reads::page`].
pub fn collect(reads: &(impl Reads + ?Sized), space: &Space, query: Query<'_>) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    visit(reads, space, query, &mut |key, value| {
        entries.push((key.clone(), value.clone()));
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}
