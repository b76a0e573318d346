//! An engine that does nothing, to measure what the lab itself costs. It stores no item, and answers a get
//! with the first version of the item from the generator. Values are so small that making one takes a few
//! nanoseconds.

use std::path::Path;
use std::time::Duration;

use esker_bench_api::generate::rng::Rng;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::store;
use esker_bench_api::{Durability, Failure, OpenOptions, Reader, Result, Store, Writer};

use crate::engines::go;
use crate::recorder::Outcome;
use crate::suites::content::Content;
use crate::suites::items::{Items, Kind, Source};
use crate::suites::plan::{Budget, Draw, Mix, Work};
use crate::suites::works::{Executor as _, mix};

pub(super) const SEED: u64 = 37;
const VALUE_BYTES: usize = 8;
const PERIOD: Duration = Duration::from_millis(250);
/// Number of items from which reads draw.
const ITEMS: u64 = 1_000_000;

/// Measures one call of the engine that does nothing: two looks at the clock, the virtual call, and a value
/// of 8 bytes. The value of the row is seconds per operation. The rate of the whole loop, with drawing and
/// verifying, is in the details.
pub(super) fn cost(dir: &Path, percent: [u32; 5], ops: u64) -> Result<Outcome> {
    let items = Items::new(Source::new(Kind::Storage, SEED, VALUE_BYTES));
    let (mut content, mut rng) = (Content::loaded(ITEMS), Rng::new(SEED));
    let echo = Echo { items: StorageItems::new(SEED, false) };
    let spec = Mix::new(percent, Draw::Uniform, Budget::of_ops(ops), PERIOD);
    let on = mix::On { items: &items, store: &echo, dir };
    let done = mix::run(on, &mut content, &mut rng, &spec, &mut |_, _| Ok(()))?;
    Ok(Outcome { value: Some(done.seconds / ops as f64), detail: done.detail, ..Outcome::default() })
}

/// The same in the program of the engines in Go.
pub(super) fn cost_in_go(dir: &Path, percent: [u32; 5], ops: u64) -> Result<Outcome> {
    let mut go = go::echo(Source::new(Kind::Storage, SEED, VALUE_BYTES), dir)?;
    go.open(&OpenOptions::with_cache(0))?;
    let put = Work::put(ITEMS, ITEMS);
    go.work(&put, &mut |_, _| Ok(()))?;
    let mix = Mix::new(percent, Draw::Uniform, Budget::of_ops(ops), PERIOD);
    let done = go.work(&Work::Mix(mix), &mut |_, _| Ok(()))?;
    Ok(Outcome { value: Some(done.seconds / ops as f64), detail: done.detail, ..Outcome::default() })
}

struct Echo {
    items: StorageItems,
}

impl Store for Echo {
    fn set_durability(&mut self, _durability: Durability) -> Result<()> {
        Ok(())
    }

    fn write(&self, work: store::Work<'_>) -> Result<()> {
        work(&mut Nowhere)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Err(Failure::Unsupported("nothing is stored".to_owned()))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Ok(key) = key.try_into() else { return Ok(false) };
        let mut value = [0; VALUE_BYTES];
        self.items.value(self.items.item(key), 0, &mut value);
        visit(&value);
        Ok(true)
    }
}

struct Nowhere;

impl Writer for Nowhere {
    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }

    fn remove(&mut self, _key: &[u8]) -> Result<()> {
        Ok(())
    }
}
