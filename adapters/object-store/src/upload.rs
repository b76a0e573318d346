//! Uploads in parts. A part is committed as it comes, without a wait for the disk. Completing an upload
//! waits for all of it.

use chrono::Utc;
use esker::{Durability, Transaction};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Attributes, MultipartId, PutPayload, PutResult};

use crate::content::write_part;
use crate::error::{Failed, generic};
use crate::parts::{Parts, Unfinished};
use crate::stored::{Object, Upload, decode, encode, part_key, store_attributes, time_of};
use crate::write::result_of;

impl Parts {
    pub(crate) fn begin_upload(&self, path: &Path, attributes: &Attributes) -> Result<MultipartId, Failed> {
        let content = self.new_content()?;
        let upload = Upload {
            path: path.to_string(),
            begun_us: Utc::now().timestamp_micros(),
            attributes: store_attributes(attributes)?,
        };
        let uploads = self.uploads.with(Durability::Buffered);
        uploads.put(content.to_be_bytes(), encode(&upload)?)?;
        Ok(content.to_string())
    }

    /// Writes a part, or replaces it.
    pub(crate) fn put_part(&self, id: &str, part: usize, payload: &PutPayload) -> Result<PartId, Failed> {
        let content = number(id)?;
        let part = u32::try_from(part).map_err(generic)?;
        let transaction = self.db.transaction().durability(Durability::Buffered);
        transaction.run(|t| {
            self.upload(t, content)?;
            let key = part_key(content, part);
            if t.contains(&self.uploads, key)? {
                t.delete_prefix(&self.content, key)?;
            }
            write_part(t, &self.content, (content, part), payload)?;
            Ok::<_, Failed>(t.put(&self.uploads, key, encode(&(payload.content_length() as u64))?)?)
        })?;
        Ok(PartId { content_id: part.to_string() })
    }

    /// object.1
    pub(crate) fn complete_upload(&self, path: &Path, id: &str, count: usize) -> Result<PutResult, Failed> {
        let content = number(id)?;
        let object = self.transact(|t| {
            let upload = self.upload(t, content)?;
            let mut object = Object {
                content,
                parts: Vec::new(),
                modified_us: Utc::now().timestamp_micros(),
                attributes: upload.attributes,
            };
            for entry in t.prefix(&self.uploads, content.to_be_bytes()).skip(1) {
                let (key, size) = entry?;
                let part = object.parts.len();
                if key != part_key(content, u32::try_from(part).map_err(generic)?) {
                    return Err(generic(format!("part {part} of the upload is missing")).into());
                }
                object.parts.push(decode(&size)?);
            }
            if object.parts.len() != count {
                let found = object.parts.len();
                return Err(generic(format!("the upload has {found} parts, not {count}")).into());
            }
            t.delete_prefix(&self.uploads, content.to_be_bytes())?;
            let old = self.find(t, path)?;
            self.replace(t, path, old, &object)?;
            Ok(object)
        })?;
        Ok(result_of(&object))
    }

    pub(crate) fn abort_upload(&self, id: &str) -> Result<(), Failed> {
        let content = number(id)?;
        self.transact(|t| {
            self.upload(t, content)?;
            t.delete_prefix(&self.uploads, content.to_be_bytes())?;
            Ok(t.delete_prefix(&self.content, content.to_be_bytes())?)
        })
    }

    pub(crate) fn unfinished(&self) -> Result<Vec<Unfinished>, Failed> {
        let mut found = Vec::new();
        for entry in self.uploads.iter() {
            let (key, value) = entry?;
            // Longer keys are of parts.
            let Ok(content) = <[u8; 8]>::try_from(&key[..]) else { continue };
            let upload: Upload = decode(&value)?;
            found.push(Unfinished {
                id: u64::from_be_bytes(content).to_string(),
                location: Path::parse(&upload.path).map_err(object_store::Error::from)?,
                begun: time_of(upload.begun_us)?,
            });
        }
        Ok(found)
    }

    fn upload(&self, t: &Transaction, content: u64) -> Result<Upload, Failed> {
        let found = t.get(&self.uploads, content.to_be_bytes())?;
        let found = found.ok_or_else(|| generic(format!("there is no upload {content}")))?;
        Ok(decode(&found)?)
    }
}

fn number(id: &str) -> Result<u64, Failed> {
    id.parse().map_err(|_| generic(format!("{id:?} is not the id of an upload")).into())
}
