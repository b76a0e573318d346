//! What a database and its trees share.

use esker::Sequence;

use crate::config::Config;
use crate::error::Result;

pub(crate) struct Shared {
    pub(crate) db: esker::Db,
    ids: Sequence,
    /// Keeps a temporary directory until the last tree is dropped. After `db`, whose files are in it.
    _config: Config,
}

impl Shared {
    pub(crate) fn new(db: esker::Db, ids: Sequence, config: Config) -> Self {
        Shared { db, ids, _config: config }
    }

    pub(crate) fn generate_id(&self) -> Result<u64> {
        Ok(self.ids.next()?)
    }
}

/// As in sled, what was written is on the disk once the last handle is gone.
impl Drop for Shared {
    fn drop(&mut self) {
        // A drop cannot report an error. A call of `flush` can.
        let _ = self.db.sync();
    }
}
