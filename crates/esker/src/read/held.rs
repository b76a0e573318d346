//! Counts the readers that hold views, from the reference counts of the views.
//!
//! ```text
//!   view_cell --each published view--> Held --references besides the cell's--> readers, oldest view
//! ```
//!
//! A reference belongs to a reader unless it is the cell's own. The cell has one reference to the
//! current view, and one to each view that is published or waits to be freed.

use std::sync::{Arc, Weak};
use std::time::Duration;

/// All live views.
pub(super) struct Held<T> {
    /// Oldest first; the last is the current one.
    views: Vec<View<T>>,
}

struct View<T> {
    view: Weak<T>,
    /// Alive while the cell publishes the view or has not freed it yet.
    shown: Weak<()>,
    since: Duration,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { views: Vec::new() }
    }
}

impl<T> Held<T> {
    /// Registers `view` as the current one. `token` lives as long as the reference that the cell publishes to
    /// readers.
    pub(super) fn show(&mut self, view: &Arc<T>, token: &Arc<()>, now: Duration) {
        self.views.retain(|old| old.view.strong_count() > 0);
        self.views.push(View { view: Arc::downgrade(view), shown: Arc::downgrade(token), since: now });
    }

    /// Returns the number of references held by readers. Also returns when the oldest view that they hold was
    /// replaced, unless it is the current one.
    pub(super) fn count(&mut self) -> (u64, Option<Duration>) {
        let (mut holders, mut oldest) = (0, None);
        for (n, view) in self.views.iter().enumerate() {
            let next = self.views.get(n + 1);
            let own = view.shown.strong_count() + usize::from(next.is_none());
            let held = view.view.strong_count().saturating_sub(own);
            holders += held as u64;
            if held > 0 {
                oldest = oldest.or(next.map(|next| next.since));
            }
        }
        (holders, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_1_readers_are_counted_and_the_cell_is_not() {
        let at = Duration::from_secs;
        let mut held = Held::default();
        let show = |held: &mut Held<u32>, n: u32| {
            let (view, token) = (Arc::new(n), Arc::new(()));
            held.show(&view, &token, at(u64::from(n)));
            (view.clone(), token, view)
        };
        let (current, token, reference) = show(&mut held, 1);
        assert_eq!(held.count(), (0, None));
        let readers = [current.clone(), current.clone()];
        assert_eq!(held.count(), (2, None), "the view that they hold is the current one");
        drop(current);
        let second = show(&mut held, 5);
        assert_eq!(held.count(), (2, Some(at(5))));
        drop((token, reference));
        assert_eq!(held.count(), (2, Some(at(5))), "the cell has freed the view");
        let newer = second.0.clone();
        drop(second.0);
        let _third = show(&mut held, 9);
        assert_eq!((held.count(), held.views.len()), ((3, Some(at(5))), 3));
        drop(readers);
        assert_eq!(held.count(), (1, Some(at(9))));
        drop((newer, second.1, second.2));
        let _fourth = show(&mut held, 11);
        assert_eq!(held.views.len(), 2, "freed views are forgotten");
    }
}
