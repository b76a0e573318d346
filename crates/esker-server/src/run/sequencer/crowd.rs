//! How long a commit waits for others to join it.

use std::time::Duration;

use crate::base::clock;
use crate::run::queue::Sequencer;

/// How many jobs shared commits lately that waited for the disk. Their connections send the next ones at about the same time: the next commit waits a
/// moment for all of them, or each would be followed by another that has the rest.
#[derive(Default)]
pub(super) struct Crowd {
    size: usize,
    /// How long the last commit took; none: the next one waits for nobody.
    took: Option<Duration>,
}

impl Crowd {
    /// It waits no longer than this.
    const WAIT_MAX: Duration = Duration::from_millis(1);

    pub(super) fn note(&mut self, jobs: usize, took: Duration) {
        self.size = jobs.max(self.size * 7 / 8);
        self.took = Some(took);
    }

    pub(super) async fn gather(&mut self, sequencer: &Sequencer) {
        let Some(took) = self.took.take().filter(|_| self.size > 2) else { return };
        let (start, patience) = (clock::moment(), (took / 4).min(Self::WAIT_MAX));
        while sequencer.len() < self.size && start.elapsed() < patience {
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
    }
}
