//! An engine that does nothing: what a row of the lab costs without one. It stores no item, and answers a get with the item's first
//! version from the generator; an item's value is so small here that making it takes a few nanoseconds.

use std::time::Duration;

use esker_bench_api::engine::Work;
use esker_bench_api::generate::distribution::Distribution;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::{Durability, Failure, Reader, Store, Writer};

use crate::recorder::Outcome;
use crate::suites::budget::Budget;
use crate::suites::mixed::{Mix, Mixed};
use crate::suites::storage_bench::VersionedItems;

pub(super) const SEED: u64 = 37;
const VALUE_BYTES: usize = 8;
const PERIOD: Duration = Duration::from_millis(250);
/// Items that reads are drawn from.
const ITEMS: u64 = 1_000_000;

/// What one call costs when the engine does nothing: the two looks at the clock, the virtual call, a value of 8 bytes. The value is
/// seconds an operation; the rate of the whole loop, with drawing and verifying, stands beside it.
pub(super) fn cost(dir: &std::path::Path, percent: [u32; 5], ops: u64) -> Result<Outcome, Failure> {
    let items = VersionedItems { items: StorageItems::new(SEED, false), value_bytes: VALUE_BYTES };
    let echo = Echo { items: items.items };
    let mut mixed = Mixed::new(items, &echo, SEED);
    mixed.adopt(ITEMS);
    let mix = Mix { percent, scan_items: 0, scan_is_uniform: false };
    let budget = Budget::of_ops(ops);
    let outcome = mixed.run(mix, &Distribution::Uniform, budget, PERIOD, dir)?;
    Ok(Outcome {
        value: outcome.seconds.map(|busy| busy / ops as f64),
        detail: outcome.detail,
        ..Outcome::default()
    })
}

struct Echo {
    items: StorageItems,
}

impl Store for Echo {
    fn set_durability(&mut self, _durability: Durability) -> Result<(), Failure> {
        Ok(())
    }

    fn write(&self, work: Work<'_>) -> Result<(), Failure> {
        work(&mut Nowhere)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure> {
        Err(Failure::Unsupported("nothing is stored".to_owned()))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let Ok(key) = key.try_into() else { return Ok(false) };
        let mut value = [0; VALUE_BYTES];
        self.items.value(self.items.item(key), 0, &mut value);
        visit(&value);
        Ok(true)
    }

    fn compact(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Nowhere;

impl Writer for Nowhere {
    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn remove(&mut self, _key: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
}
