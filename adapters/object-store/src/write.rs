//! Puts, deletions, copies and renames: a transaction each.

use chrono::Utc;
use esker::{Durability, Transaction};
use object_store::path::Path;
use object_store::{CopyMode, PutMode, PutOptions, PutPayload, PutResult, RenameTargetMode};

use crate::content::write_part;
use crate::error::{Failed, exists, generic, not_found, precondition};
use crate::parts::Parts;
use crate::stored::{Object, chunk_key, decode, e_tag, encode, store_attributes};

impl Parts {
    /// Runs a transaction whose commit waits for the disk.
    pub(crate) fn transact<T>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        self.db.transaction().durability(Durability::Sync).run(body).map(|done| done.value)
    }

    /// Writes an object and its content.
    pub(crate) fn put(
        &self,
        location: &Path,
        payload: &PutPayload,
        opts: &PutOptions,
    ) -> Result<PutResult, Failed> {
        let object = Object {
            content: self.new_content()?,
            parts: vec![payload.content_length() as u64],
            modified_us: Utc::now().timestamp_micros(),
            attributes: store_attributes(&opts.attributes)?,
        };
        self.transact(|t| {
            let old = self.find(t, location)?;
            may_put(location, old.as_ref(), &opts.mode)?;
            write_part(t, &self.content, (object.content, 0), payload)?;
            self.replace(t, location, old, &object)
        })?;
        Ok(result_of(&object))
    }

    pub(crate) fn delete(&self, location: &Path) -> Result<(), Failed> {
        self.transact(|t| {
            let Some(old) = self.find(t, location)? else { return Ok(()) };
            t.delete_prefix(&self.content, old.content.to_be_bytes())?;
            Ok(t.delete(&self.objects, location.as_ref())?)
        })
    }

    pub(crate) fn copy(&self, from: &Path, to: &Path, mode: CopyMode) -> Result<(), Failed> {
        let content = self.new_content()?;
        self.transact(|t| {
            let source = self.find(t, from)?.ok_or_else(|| not_found(from))?;
            let target = self.find(t, to)?;
            if target.is_some() && matches!(mode, CopyMode::Create) {
                return Err(exists(to).into());
            }
            let copy = Object { content, modified_us: Utc::now().timestamp_micros(), ..source };
            for chunk in t.snapshot().prefix(&self.content, source.content.to_be_bytes()) {
                let (key, value) = chunk?;
                let mut copied = chunk_key(content, 0, 0);
                let rest = key.get(8..16).ok_or_else(|| generic("a chunk with a short key"))?;
                copied[8..].copy_from_slice(rest);
                t.put(&self.content, copied, &value)?;
            }
            self.replace(t, to, target, &copy)
        })
    }

    /// Moves the object without its content: the content keeps its number.
    pub(crate) fn rename(&self, from: &Path, to: &Path, mode: RenameTargetMode) -> Result<(), Failed> {
        self.transact(|t| {
            let source = self.find(t, from)?.ok_or_else(|| not_found(from))?;
            let target = self.find(t, to)?;
            if target.is_some() && matches!(mode, RenameTargetMode::Create) {
                return Err(exists(to).into());
            }
            if from == to {
                return Ok(());
            }
            t.delete(&self.objects, from.as_ref())?;
            self.replace(t, to, target, &source)
        })
    }

    pub(crate) fn find(&self, t: &Transaction, location: &Path) -> Result<Option<Object>, Failed> {
        let found = t.get(&self.objects, location.as_ref())?;
        Ok(found.map(|bytes| decode(&bytes)).transpose()?)
    }

    /// Replaces an object. Its old content goes.
    pub(crate) fn replace(
        &self,
        t: &mut Transaction,
        location: &Path,
        old: Option<Object>,
        new: &Object,
    ) -> Result<(), Failed> {
        if let Some(old) = old {
            t.delete_prefix(&self.content, old.content.to_be_bytes())?;
        }
        Ok(t.put(&self.objects, location.as_ref(), encode(new)?)?)
    }
}

pub(crate) fn result_of(object: &Object) -> PutResult {
    PutResult { e_tag: Some(e_tag(object.content)), version: None, extensions: Default::default() }
}

fn may_put(location: &Path, old: Option<&Object>, mode: &PutMode) -> Result<(), Failed> {
    match mode {
        PutMode::Overwrite => Ok(()),
        PutMode::Create if old.is_none() => Ok(()),
        PutMode::Create => Err(exists(location).into()),
        PutMode::Update(expected) => {
            let expected = expected.e_tag.as_ref().ok_or_else(|| generic("an update needs an e_tag"))?;
            let found = old.map(|old| e_tag(old.content));
            if found.as_ref() == Some(expected) {
                return Ok(());
            }
            let found = found.as_deref().unwrap_or("no object").to_owned();
            Err(precondition(location, format!("{found} does not match {expected}")).into())
        }
    }
}
