//! Decides how long a commit waits for other jobs to join it.

use std::time::Duration;

use crate::base::clock;
use crate::run::queue::Sequencer;

/// The number of jobs that recently shared commits. After a commit that waited for the disk, the connections
/// send their next jobs at about the same time. The next commit waits briefly for all of them. Otherwise each
/// commit would be followed by another one with the rest.
#[derive(Default)]
pub(super) struct Crowd {
    size: usize,
    /// Duration of the last commit. `None`: the next one does not wait.
    took: Option<Duration>,
}

impl Crowd {
    /// Maximum time that a commit waits.
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
