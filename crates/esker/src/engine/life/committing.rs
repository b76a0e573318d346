//! Asynchronous commits: they are queued for a thread that is started with the first of them.

use super::handle::Handle;
use crate::engine::base::options::Background;
use crate::engine::writes::committer::Committing;
use crate::txn::commit::CommitRequest;
use crate::types::{Error, Result};

impl Handle {
    /// Commits without a thread that waits (committer.1).
    pub(crate) fn commit_async(&self, mut request: CommitRequest) -> Committing {
        if request.may_be_at_once() && self.core.committer.is_idle() {
            match self.core.submit_at_once(request) {
                Ok(outcome) => return Committing::done(outcome),
                Err(given_back) => request = *given_back,
            }
        }
        let ready = self.start_committer().and_then(|()| self.core.pipeline.look_ahead(&mut request));
        if let Err(error) = ready {
            return Committing::done(Err(error));
        }
        let mut request = Some(request);
        let queued = match self.core.exclusive_turn.held_by_this_thread() {
            Some(_) => None,
            None => self.core.committer.push(&mut request),
        };
        let at_once = || request.map_or(Err(Error::Closed), |request| self.core.submit(request));
        queued.unwrap_or_else(|| Committing::done(at_once()))
    }

    /// Without threads, as in simulations, each caller commits itself.
    fn start_committer(&self) -> Result<()> {
        self.core.check_ours()?;
        if self.core.options.background() != Background::Threads || self.core.committer.begin() {
            return Ok(());
        }
        let core = self.core.clone();
        let spawned = core.env.threads.spawn("esker-commit", {
            let core = core.clone();
            Box::new(move || core.commit_for_others())
        });
        match spawned {
            Ok(thread) => self.join_at_close(thread),
            Err(error) => {
                core.committer.abandon();
                Err(Error::io("start a thread for", &core.dir, error))
            }
        }
    }
}
