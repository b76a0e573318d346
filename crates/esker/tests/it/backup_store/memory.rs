//! A store of objects in memory, with faults and with other processes that act between two calls.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use esker::backup::{BackupStore, Listed, Upload};

/// What happens at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every call fails from here on, like those of a killed process.
    Dead,
    /// This call fails without effect.
    Refused,
    /// This call has its effect and reports an error.
    Unanswered,
}

/// Called once, between two calls.
pub type Other = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Objects {
    objects: BTreeMap<String, Vec<u8>>,
    /// The name and the parts of unfinished uploads.
    uploads: BTreeMap<String, (String, Vec<u8>)>,
    uploads_begun: u64,
}

#[derive(Default)]
struct Plan {
    changes: u64,
    fault: Option<(u64, Fault)>,
    other: Option<(u64, Other)>,
    is_dead: bool,
    ignores_conditions: bool,
}

/// The view that one process has of a store. [`MemoryStore::other`] returns that of another one.
#[derive(Clone, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<Objects>>,
    plan: Arc<Mutex<Plan>>,
    lease: Duration,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl MemoryStore {
    pub fn new(lease: Duration) -> MemoryStore {
        MemoryStore { lease, ..MemoryStore::default() }
    }

    pub fn other(&self) -> MemoryStore {
        MemoryStore { plan: Arc::default(), ..self.clone() }
    }

    pub fn with_fault(self, nth: u64, fault: Fault) -> MemoryStore {
        self.plan.lock().unwrap().fault = Some((nth, fault));
        self
    }

    pub fn with_other(self, nth: u64, other: Other) -> MemoryStore {
        self.plan.lock().unwrap().other = Some((nth, other));
        self
    }

    pub fn ignoring_conditions(self) -> MemoryStore {
        self.plan.lock().unwrap().ignores_conditions = true;
        self
    }

    /// Returns whether the fault or the other process has had its turn.
    pub fn is_over(&self) -> bool {
        let plan = self.plan.lock().unwrap();
        plan.fault.is_none() && plan.other.is_none()
    }

    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().objects.keys().cloned().collect()
    }

    pub fn uploads(&self) -> usize {
        self.objects.lock().unwrap().uploads.len()
    }

    /// Bytes of the parts of unfinished uploads.
    pub fn parts_bytes(&self) -> usize {
        self.objects.lock().unwrap().uploads.values().map(|(_, parts)| parts.len()).sum()
    }

    pub fn uploads_begun(&self) -> u64 {
        self.objects.lock().unwrap().uploads_begun
    }

    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        edit(self.objects.lock().unwrap().objects.get_mut(name).unwrap());
    }

    fn read<T>(&self, read: impl FnOnce(&Objects) -> io::Result<T>) -> io::Result<T> {
        if self.plan.lock().unwrap().is_dead {
            return Err(io::Error::other("dead"));
        }
        read(&self.objects.lock().unwrap())
    }

    fn change<T>(&self, change: impl FnOnce(MutexGuard<'_, Objects>) -> io::Result<T>) -> io::Result<T> {
        let (fault, other) = {
            let mut plan = self.plan.lock().unwrap();
            plan.changes += 1;
            let changes = plan.changes;
            let fault = plan.fault.take_if(|(nth, _)| *nth == changes).map(|(_, fault)| fault);
            plan.is_dead |= fault == Some(Fault::Dead);
            if plan.is_dead {
                return Err(io::Error::other("dead"));
            }
            (fault, plan.other.take_if(|(nth, _)| *nth == changes))
        };
        if let Some((_, other)) = other {
            other();
        }
        match fault {
            Some(Fault::Refused) => Err(io::Error::other("refused")),
            Some(_) => change(self.objects.lock().unwrap()).and(Err(io::Error::other("unanswered"))),
            None => change(self.objects.lock().unwrap()),
        }
    }
}

impl BackupStore for MemoryStore {
    fn url(&self) -> &str {
        "memory://backups"
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Listed>> {
        self.read(|of| {
            let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
            let mut found = Vec::new();
            for (name, bytes) in &of.objects {
                let Some(name) = name.strip_prefix(&prefix) else { continue };
                found.push(match name.split_once('/') {
                    Some((dir, _)) => Listed { name: dir.to_owned(), size: None },
                    None => Listed { name: name.to_owned(), size: Some(bytes.len() as u64) },
                });
            }
            found.dedup();
            Ok(found)
        })
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        self.read(|of| {
            let bytes = of.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            let range = range.map_or(0..bytes.len(), |range| range.start as usize..range.end as usize);
            bytes.get(range).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
        })
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.change(|mut of| {
            of.objects.insert(name.to_owned(), bytes);
            Ok(())
        })
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let ignores_conditions = self.plan.lock().unwrap().ignores_conditions;
        self.change(|mut of| match of.objects.contains_key(name) && !ignores_conditions {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => {
                of.objects.insert(name.to_owned(), bytes);
                Ok(())
            }
        })
    }

    fn upload(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.change(|mut of| {
            of.uploads_begun += 1;
            let id = format!("upload-{}", of.uploads_begun);
            of.uploads.insert(id.clone(), (name.to_owned(), Vec::new()));
            Ok(Box::new(MemoryUpload { store: self.clone(), id }) as Box<dyn Upload>)
        })
    }

    fn abort(&self, name: &str, upload: &str) -> io::Result<()> {
        self.change(|mut of| {
            assert!(of.uploads.remove(upload).is_none_or(|(of_it, _)| of_it == name));
            Ok(())
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.change(|mut of| {
            of.objects.remove(name);
            Ok(())
        })
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}

#[derive(Debug)]
struct MemoryUpload {
    store: MemoryStore,
    id: String,
}

impl Upload for MemoryUpload {
    fn id(&self) -> &str {
        &self.id
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        self.store.change(|mut of| {
            of.uploads.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?.1.extend(part);
            Ok(())
        })
    }

    fn complete(&mut self) -> io::Result<()> {
        self.store.change(|mut of| {
            let (name, bytes) = of.uploads.remove(&self.id).ok_or(io::ErrorKind::NotFound)?;
            of.objects.insert(name, bytes);
            Ok(())
        })
    }
}
