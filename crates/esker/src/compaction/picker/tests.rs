//! Tests of the picker as text: a version, what happens, and which plan is picked.

use std::collections::HashMap;

use super::*;
use crate::compaction::manual::{self, ManualProgress};
use crate::compaction::partition::partitions;
use crate::compaction::plan::{Limits, OutputRun, PlanKind, plan_into_base, settled};
use crate::compaction::rules::Rules;
use crate::manifest::edit::{AddedTable, VersionEdit};
use crate::manifest::level::{Level, RunId};
use crate::sstable::{Counts, Fingerprint, TableMeta};
use crate::types::key_range::{End, KeyRange};
use crate::types::{FileId, SeqNo};

const MIB: u64 = 1 << 20;

/// `L0: 8[c-k]10 / 7[a-f] tier: 6[a-z] tier2: 5[a-z] base: 3[a-d]64! 4[m-z]-`: levels with runs, newest
/// first, separated by ` / `. Tables are file[first-last], size in MiB (64 if absent), `!` for tombstones,
/// `~` for range tombstones, `-` for sequence numbers that are all zero.
pub(crate) fn parse_version(text: &str) -> Version<()> {
    let mut edit = VersionEdit::default();
    let mut level = Level::L0;
    let mut run = 1000;
    for word in text.split_whitespace() {
        match word {
            "L0:" | "base:" | "/" => {
                run -= 1;
                level = if word == "base:" { Level::BASE } else { level };
            }
            tier if tier.starts_with("tier") => {
                run -= 1;
                level = Level::from_u8(tier[4..5].parse().unwrap_or(1)).unwrap();
            }
            table => edit.added.push(parse_table(table, level, RunId(run))),
        }
    }
    let opened = edit.added.iter().map(|a| (a.file, ())).collect();
    Version::empty().apply(&edit, opened)
}

fn parse_table(text: &str, level: Level, run: RunId) -> AddedTable {
    let (file, rest) = text.split_once('[').unwrap();
    let (range, rest) = rest.split_once(']').unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let size = rest.trim_end_matches(['!', '~', '-']);
    let mib = if size.is_empty() { 64 } else { size.parse().unwrap() };
    let meta = TableMeta {
        blobs: Default::default(),
        file_bytes: mib * MIB,
        fingerprint: Fingerprint::default(),
        base_seq: SeqNo::ZERO,
        range: KeyRange { start: start.into(), end: End::Included(end.into()) },
        counts: Counts {
            entries: mib * 1000,
            tombstones: if rest.contains('!') { mib * 500 } else { 0 },
            range_tombstones: u64::from(rest.contains('~')),
            max_seq: SeqNo::new(u64::from(!rest.contains('-'))),
            ..Counts::default()
        },
    };
    AddedTable { file: FileId::new(file.parse().unwrap()), level, run, meta }
}

fn show(plan: &Plan) -> String {
    let name = |level: Level| match level {
        Level::L0 => "L0".to_owned(),
        Level::TIER => "tier".to_owned(),
        Level::BASE => "base".to_owned(),
        level => format!("tier{}", level.get()),
    };
    let inputs: Vec<_> = plan
        .inputs
        .iter()
        .map(|i| {
            let files: Vec<_> = i.files.iter().map(FileId::to_string).collect();
            format!("{}{{{}}}", name(i.level), files.join(","))
        })
        .collect();
    let verb = if plan.kind == PlanKind::Rewrite { "merge" } else { "move" };
    let target = if plan.output_run == OutputRun::New { "new " } else { "" };
    let bottom = if plan.bottommost { "" } else { " (not bottommost)" };
    let cuts: Vec<_> = plan.fences.iter().map(|key| key.escape_ascii().to_string()).collect();
    let cuts = if cuts.is_empty() { String::new() } else { format!(" cut at {}", cuts.join(",")) };
    format!("{verb} {} into {target}{}{cuts}{bottom}", inputs.join(" + "), name(plan.output_level))
}

/// Words: `busy`, `idle`, `beyond` (the cache), `wasted=MS`, `unreadable=FILE,FILE`, `off=FILE,FILE` (put
/// off), `settled` (no snapshot is older than any number).
fn parse_input(words: &str) -> PickInput {
    let file = |text: &str| FileId::new(text.parse().unwrap());
    let files = |name: &str| {
        let list = words.split_whitespace().find_map(|w| w.strip_prefix(name));
        list.iter().flat_map(|files| files.split(',')).map(file).collect()
    };
    let wasted = words.split_whitespace().find_map(|w| w.strip_prefix("wasted="));
    PickInput {
        limits: Limits { fits_cache: !words.contains("beyond"), ..Limits::default() },
        idle: words.contains("idle"),
        wasted_seek_ns: wasted.map_or(0, |ms| ms.parse::<u64>().unwrap() * 1_000_000),
        bytes_per_second: 1000 * MIB,
        skip: files("unreadable="),
        put_off: files("off="),
        running: Vec::new(),
        rules: Rules::default(),
        oldest_horizon: SeqNo::new(u64::from(words.contains("settled"))),
    }
}

/// `c-e`: from `c` up to, but not including, `e`.
fn parse_range(text: &str) -> KeyRange {
    let (start, end) = text.split_once('-').unwrap();
    KeyRange { start: start.into(), end: End::Excluded(end.into()) }
}

/// Runs a table of lines: a version, then lines `words -> plan`. `compact` is a manual compaction, `compact
/// c-e` that of a range. `together` picks plans until none may run beside the others.
fn check(table: &str) {
    let mut version = Version::empty();
    for line in table.lines().map(str::trim).filter(|l| !l.is_empty()) {
        match line.split_once(" -> ") {
            None => version = parse_version(line),
            Some((words, expected)) if words.starts_with("compact") => {
                let range = words.split_once(' ').map(|(_, range)| parse_range(range));
                let mut progress = ManualProgress::within(range);
                let mut plans = Vec::new();
                while let Some(plan) = manual::pick(&version, &Limits::default(), &|_| false, &mut progress) {
                    plans.push(show(&plan));
                    // The version stays, so a table that was cut would be cut again.
                    if !plan.fences.is_empty() {
                        break;
                    }
                }
                let plans = if plans.is_empty() { "nothing".to_owned() } else { plans.join(", then ") };
                assert_eq!(plans, expected, "{version:?}");
            }
            Some((words, expected)) if words.starts_with("together") => {
                let mut input = parse_input(words);
                let mut plans = Vec::new();
                while let Some(plan) = pick(&version, &input) {
                    plans.push(show(&plan));
                    input.running.push(Claim::of(&plan, &version));
                }
                assert_eq!(plans.join(", beside "), expected, "{words}: {version:?}");
            }
            Some((words, expected)) => {
                let plan = pick(&version, &parse_input(words));
                assert_eq!(
                    plan.as_ref().map_or("nothing".to_owned(), show),
                    expected,
                    "{words}: {version:?}"
                );
            }
        }
    }
}

#[test]
fn cached_data_merges_when_idle_or_when_it_pays() {
    check(
        "
        L0: 8[c-k]10 / 7[a-f]10  base: 3[a-d] 4[m-z]
        busy -> nothing
        idle -> merge L0{8} + L0{7} + base{3} into base
        busy wasted=83 -> nothing
        busy wasted=84 -> merge L0{8} + L0{7} + base{3} into base

        L0: 9[a-z]1 / 8[a-z]1 / 7[a-z]1 / 6[a-z]1  base: 1[a-z]
        busy -> nothing
        L0: 10[a-z]1 / 9[a-z]1 / 8[a-z]1 / 7[a-z]1 / 6[a-z]1  base: 1[a-z]
        busy -> merge L0{10} + L0{9} + L0{8} + L0{7} + L0{6} + base{1} into base

        L0: 8[a-z]64  base: 1[a-h] 2[i-p] 3[q-z] 4[zz-zzz]
        busy -> nothing
        L0: 8[a-z]70  base: 1[a-h] 2[i-p] 3[q-z]
        busy -> merge L0{8} + base{1,2,3} into base

        tier: 8[a-c]10  base: 1[a-h]
        idle -> merge tier{8} + base{1} into base

        L0: 8[a-z]30 / 7[a-z]30
        busy -> nothing
        idle -> merge L0{8} + L0{7} into new base

        base: 1[a-h]! 2[i-p]
        idle -> nothing
        ",
    );
}

#[test]
fn what_snapshots_held_goes_when_they_are_released_and_the_database_is_idle() {
    check(
        "
        base: 1[a-h]10! 2[i-p]20! 3[q-z]30
        idle -> nothing
        busy settled -> nothing
        idle settled -> merge base{2} into base
        idle beyond settled -> merge base{2} into base
        idle settled unreadable=2 -> merge base{1} into base
        base: 1[a-h]- 2[i-p]
        idle settled -> nothing
        base: 1[a-h]10 2[i-p]20~
        idle -> nothing
        idle settled -> merge base{2} into base
        L0: 8[b-c]1  base: 1[a-h]50! 2[i-p]60!
        idle settled -> merge L0{8} + base{1} into base
        idle beyond settled -> merge base{2} into base
        L0: 8[a-c]1~  base: 1[a-h]50 2[i-p]60
        busy beyond settled -> nothing
        idle beyond -> nothing
        idle beyond settled -> merge L0{8} + base{1} into base
        L0: 8[a-c]20!  base: 1[a-h]50 2[i-p]60
        idle beyond settled -> merge L0{8} + base{1} into base
        ",
    );
}

#[test]
fn the_partition_that_absorbs_most_for_its_bytes_goes_first() {
    check(
        "
        L0: 8[b-c]10 9[n-o]20 10[v-w]5  base: 1[a-h] 2[m-p] 3[u-z]
        idle -> merge L0{9} + base{2} into base
        L0: 8[b-c]10 9[n-o]20 10[v-w]5!  base: 1[a-h]60! 2[m-p] 3[u-z]
        idle -> merge L0{8} + base{1} into base
        ",
    );
}

#[test]
fn a_table_that_overlaps_nothing_moves_without_rewriting() {
    check(
        "
        L0: 8[n-z]
        busy -> move L0{8} into new base
        L0: 9[a-c] 8[n-z]  base: 1[d-m]
        busy -> move L0{9,8} into base
        L0: 9[n-z]40!  base: 1[d-m]
        busy -> nothing
        idle -> merge L0{9} into base

        L0: 9[n-z]1  base: 1[d-m]3
        busy -> nothing
        idle -> merge L0{9} + base{1} into base
        L0: 9[n-z]1  base: 1[d-m]5
        busy -> move L0{9} into base
        ",
    );
}

#[test]
fn beyond_the_cache_a_small_base_takes_what_is_a_quarter_of_it_or_three_runs() {
    check(
        "
        L0: 9[a-z]1 / 8[a-z]1  base: 1[a-z]
        idle beyond -> nothing
        busy beyond wasted=65 -> nothing
        busy beyond wasted=66 -> merge L0{9} + L0{8} + base{1} into base
        L0: 9[a-z]1 / 8[a-z]1 / 7[a-z]1  base: 1[a-z]
        busy beyond -> merge L0{9} + L0{8} + L0{7} + base{1} into base
        L0: 9[a-z]16  base: 1[a-z]
        busy beyond -> merge L0{9} + base{1} into base
        L0: 9[a-z]11  base: 1[a-z]
        busy beyond -> nothing
        idle beyond -> merge L0{9} + base{1} into base
        idle beyond off=1 -> nothing
        L0: 9[a-z]11!  base: 1[a-z]
        busy beyond -> merge L0{9} + base{1} into base
        ",
    );
}

#[test]
fn three_runs_of_a_slot_become_one_of_the_next_tier() {
    check(
        "
        L0: 9[a-z] / 8[a-z]  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> nothing
        L0: 9[a-z] / 8[a-z] / 7[a-z]  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> merge L0{9} + L0{8} + L0{7} into new tier cut at g,n,u (not bottommost)
        L0: 9[a-z] / 8[a-z] / 7[a-z]  tier: 6[a-h]20 5[j-z]20  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> merge L0{9} + L0{8} + L0{7} into new tier cut at j (not bottommost)

        tier: 6[a-f]60 7[g-m]124 / 5[a-f]65  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> merge tier{6} + tier{5} + base{1} into base
        busy beyond unreadable=1 -> nothing
        tier: 8[a-f]9 / 7[a-f]9 / 6[a-f]9 / 5[a-f]9  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> merge tier{8} + tier{7} + tier{6} + tier{5} into tier (not bottommost)
        tier: 8[a-f]20 / 7[a-f]20 / 6[a-f]20 / 5[a-f]20  base: 1[a-f]500 2[g-m]500 3[n-t]500 4[u-z]500
        busy beyond -> merge tier{8} + tier{7} + tier{6} + tier{5} + base{1} into base

        L0: 9[a-z] / 8[a-z] / 7[a-z]  tier: 6[a-m]100 4[n-z]100 / 5[a-m]100 3[n-z]100  base: 1[a-m]2000 2[n-z]2000
        busy beyond -> merge L0{9} + L0{8} + L0{7} + tier{6,4} + tier{5,3} into new tier2 cut at n (not bottommost)
        L0: 9[a-z] / 8[a-z] / 7[a-z]  tier: 6[a-m] 4[n-z]  base: 1[a-m]2000 2[n-z]2000
        busy beyond -> merge L0{9} + L0{8} + L0{7} into new tier cut at n (not bottommost)
        L0: 9[a-z] / 8[a-z] / 7[a-z]  tier: 6[a-m] / 5[a-m] / 4[a-m] / 3[a-m]  base: 1[a-m]2000 2[n-z]2000
        busy beyond -> merge tier{6} + tier{5} + tier{4} + tier{3} into new tier2 (not bottommost)
        ",
    );
}

#[test]
fn a_compaction_takes_no_more_than_it_may() {
    check(
        "
        L0: 9[a-c]200 8[d-j]300 7[k-z]300 / 6[a-d]200 5[e-h]300 4[i-z]300  base: 1[a-m]2000 2[n-z]2000
        busy beyond -> merge L0{9} + L0{6,5} into new tier (not bottommost)
        tier: 9[a-e]40 8[f-j]40 / 7[a-d]40 6[e-k]40  base: 1[a-b]300 2[c-d]300 3[e-f]300 4[g-k]300
        busy beyond wasted=100000 -> merge tier{7} + base{1,2} into base
        tier3: 8[a-f]9 / 7[a-f]9 / 6[a-f]9 / 5[a-f]1100  base: 1[a-c]10000 2[d-f]10000
        busy beyond -> merge tier3{5} + base{1,2} into base
        ",
    );
}

#[test]
fn beyond_the_cache_too_many_runs_over_a_key_are_merged_early() {
    let tiers = "tier: 8[a-z]1 / 7[a-z]1  tier2: 6[a-z]1 / 5[a-z]1  tier3: 4[a-z]1 / 3[a-z]1  tier4: 12[a-z]1 / 11[a-z]1";
    check(&format!(
        "
        L0: 10[a-z]1  {tiers}  base: 1[a-z]4000
        busy beyond -> nothing
        L0: 10[a-c]1 / 9[a-z]1  {tiers}  base: 1[a-z]4000
        busy beyond -> merge L0{{10}} + L0{{9}} into new tier (not bottommost)
        "
    ));
}

#[test]
fn beyond_the_cache_tables_that_overlap_nothing_gather() {
    check(
        "
        L0: 9[n-z]1  base: 1[d-m]3
        busy beyond -> nothing
        L0: 9[n-z]3  base: 1[d-m]3
        busy beyond -> merge L0{9} + base{1} into base
        L0: 9[a-c] / 8[n-z]  tier: 5[d-e]50  base: 1[d-m]
        busy beyond -> move L0{9} + L0{8} into base
        L0: 9[n-z]40!  base: 1[d-m]
        busy beyond -> merge L0{9} into base
        tier: 9[a-b]1 / 8[c-d]1 / 7[a-b]1 / 6[e-f]1 / 5[a-b]1  base: 1[a-z]
        busy beyond -> move tier{6} into tier (not bottommost)
        ",
    );
}

#[test]
fn what_overlaps_nothing_goes_into_the_oldest_tier_run() {
    let target = |tiers: &str, range: &str| {
        let l0 = [9, 8, 7, 6, 5].map(|file| format!("{file}{range}1")).join(" / ");
        let version = parse_version(&format!("L0: {l0}  {tiers}  base: 1[a-z]2000"));
        let plan = pick(&version, &parse_input("busy beyond")).unwrap();
        let OutputRun::Existing(id) = plan.output_run else { return None };
        assert_eq!(settled(&version, &plan, &plan.range), Some(id));
        version.runs().iter().filter(|run| run.level == Level::TIER).position(|run| run.id == id)
    };
    let tiers = "tier: 20[a-b]1 21[g-h]1 / 22[a-b]1 23[e-f]1 / 24[a-b]1 25[i-j]1";
    assert_eq!(target(tiers, "[c-d]"), Some(2), "not only the newest of three");
    assert_eq!(target(tiers, "[i-j]"), Some(1));
    assert_eq!(target(tiers, "[e-f]"), Some(0), "not below a newer table");
    assert_eq!(target(tiers, "[g-h]"), None);
}

#[test]
fn what_cannot_be_read_holds_up_nothing_else() {
    check(
        "
        L0: 8[b-c]10 9[n-o]20 10[v-w]5  base: 1[a-h] 2[m-p] 3[u-z]
        idle unreadable=2 -> merge L0{8} + base{1} into base
        idle unreadable=2,8 -> merge L0{10} + base{3} into base
        idle unreadable=1,2,10 -> nothing

        L0: 9[a-b]1 / 8[a-b]1 / 7[a-b]1 / 6[a-b]1 / 5[a-b]1 12[y-z]1  base: 1[a-c] 2[x-z]
        busy -> merge L0{9} + L0{8} + L0{7} + L0{6} + L0{5} + base{1} into base
        busy unreadable=1 -> nothing
        idle unreadable=1 -> merge L0{12} + base{2} into base

        L0: 9[a-b]1 8[m-n]1  base: 1[a-c]4 2[d-e]4 3[m-p]4
        idle -> merge L0{9,8} + base{1,2,3} into base
        idle unreadable=2 -> merge L0{9} + base{1} into base
        idle unreadable=1,2 -> merge L0{8} + base{3} into base

        L0: 9[a-m]1 10[n-z]1 / 8[a-c]1 11[n-z]1 / 7[a-m]1 / 6[n-p]1 / 5[n-z]1  tier: 2[a-c]4  base: 1[a-z]2000
        busy beyond unreadable=1 -> merge L0{10} + L0{11} + L0{6} + L0{5} into tier (not bottommost)
        busy beyond unreadable=11 -> merge L0{9} + L0{8} + L0{7} into new tier (not bottommost)
        busy beyond unreadable=7,11 -> nothing

        tier: 3[a-c]17 4[n-o]18  base: 1[a-h]64 5[n-z]64
        busy beyond -> merge tier{4} + base{5} into base
        busy beyond unreadable=5 -> merge tier{3} + base{1} into base
        busy beyond unreadable=1,5 -> nothing
        ",
    );
}

#[test]
fn what_could_not_be_written_is_put_off_until_it_is_needed() {
    check(
        "
        base: 1[a-h]10! 2[i-p]20! 3[q-z]30
        idle settled off=2 -> merge base{1} into base
        idle settled off=1,2 -> nothing

        L0: 8[b-c]10 9[n-o]20 10[v-w]5  base: 1[a-h] 2[m-p] 3[u-z]
        idle off=9 -> merge L0{8} + base{1} into base
        idle off=1,2 -> merge L0{10} + base{3} into base
        idle off=1,2,3 -> nothing
        idle off=2 wasted=83 -> merge L0{8} + base{1} into base
        idle off=2 wasted=84 -> merge L0{9} + base{2} into base

        L0: 10[a-z]1 / 9[a-z]1 / 8[a-z]1 / 7[a-z]1 / 6[a-z]1  base: 1[a-z]
        idle off=1,10 -> merge L0{10} + L0{9} + L0{8} + L0{7} + L0{6} + base{1} into base
        L0: 9[a-c]
        idle off=9 -> move L0{9} into new base
        ",
    );
}

#[test]
fn picker_6_plans_run_together_if_they_share_no_level_or_no_key() {
    check(
        "
        L0: 8[b-c]10 9[n-o]20 10[v-w]5  base: 1[a-h] 2[m-p] 3[u-z]
        together idle -> merge L0{9} + base{2} into base, beside merge L0{8} + base{1} into base, \
         beside merge L0{10} + base{3} into base
        L0: 8[b-q]10 9[v-w]5  base: 1[a-h] 2[m-p] 3[u-z]
        together idle -> merge L0{8} + base{1,2} into base, beside merge L0{9} + base{3} into base
        L0: 7[a-c] 8[g-k] / 9[d-e] / 10[b-h]  base: 1[a-c] 2[g-k]
        together idle -> merge L0{7,8} + L0{9} + L0{10} + base{1,2} into base

        L0: 40[a-z]1 / 41[a-z]1 / 42[a-z]1  tier2: 30[a-c]50 31[m-o]40  base: 1[a-f]100 2[m-o]100 3[p-z]5800
        together busy beyond -> merge tier2{30} + base{1} into base, beside merge tier2{31} + base{2} into base, \
         beside merge L0{40} + L0{41} + L0{42} into new tier (not bottommost)
        ",
    );
}

#[test]
fn picker_6_what_is_flushed_between_the_inputs_of_a_running_plan_waits_for_its_end() {
    let before = parse_version("L0: 8[b-c]10  base: 1[a-d]10 2[w-z]10");
    let plan = pick(&before, &parse_input("idle")).unwrap();
    assert_eq!(show(&plan), "merge L0{8} + base{1,2} into base");
    let after = parse_version("L0: 9[m-n]90 / 8[b-c]10  base: 1[a-d]10 2[w-z]10");
    let mut input = parse_input("idle");
    input.running.push(Claim::of(&plan, &before));
    // The plan's output may span it.
    assert_eq!(pick(&after, &input), None);
}

#[test]
fn a_manual_compaction_leaves_one_clean_run() {
    check(
        "
        L0: 9[c-k]1 / 8[a-f]1-  base: 1[a-d] 2[m-n]- 3[o-p]! 4[q-r] 5[s-t]20 6[u-v]20
        compact -> merge L0{9} + L0{8} + base{1} into base, then merge base{3} into base, then merge base{4} into base, \
         then merge base{5,6} into base
        base: 1[a-b]- 2[c-d]-
        compact -> nothing
        L0: 9[c-k]-
        compact -> move L0{9} into new base
        "
    );
}

#[test]
fn a_range_is_compacted_without_the_base_tables_beside_it() {
    check(
        "
        L0: 9[c-f]1 8[m-n]1  base: 1[a-c] 2[d-g]! 3[h-j]! 4[k-p]
        compact c-f -> merge L0{9} + base{1,2} into base
        compact h-i -> merge base{3} into base
        compact q-z -> nothing
        compact k-l -> merge L0{8} + base{4} into base

        L0: 9[a-z]1  base: 1[a-c]- 2[d-g]- 3[h-j]- 4[k-p]-
        compact e-f -> merge L0{9} into L0 cut at d,g\\x00 (not bottommost)
        tier: 9[a-e]1 8[f-z]1  base: 1[a-c]- 2[d-g]- 3[h-j]-
        compact f-g -> merge tier{9} into tier cut at d,g\\x00 (not bottommost)
        L0: 9[c-e]1  base: 1[a-b]-
        compact d-z -> merge L0{9} into L0 cut at d,z
        ",
    );
}

#[test]
fn random_ranges_are_compacted_and_the_base_beside_them_stays() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut version, mut next) = (Version::empty(), 0);
        for run in 0..rng.u64(2..8) {
            version = with_random_run(&version, &mut rng, RunId(run));
            if rng.bool() {
                let input = parse_input(["idle", "idle beyond"][rng.usize(0..2)]);
                if let Some(plan) = pick(&version, &input) {
                    version = execute(&version, &plan, input.oldest_horizon, &mut next);
                }
            }
        }
        let (start, end) = (rng.u8(0..200), rng.u8(201..));
        let range = parse_range(&format!("{start:03}-{end:03}"));
        let base = |version: &Version<()>| version.base().map_or(&[][..], |run| run.tables()).to_vec();
        let beside: Vec<_> =
            base(&version).into_iter().filter(|t| !t.meta.range.overlaps(&range)).map(|t| t.file).collect();
        let mut progress = ManualProgress::within(Some(range.clone()));
        let limits = parse_input(["", "beyond"][rng.usize(0..2)]).limits;
        for step in 0.. {
            let Some(plan) = manual::pick(&version, &limits, &|_| false, &mut progress) else { break };
            assert!(step < 200, "picker.3: seed {seed}");
            version = execute(&version, &plan, SeqNo::MAX, &mut next);
        }
        let mut upper = version.runs().iter().filter(|run| run.level != Level::BASE);
        assert!(upper.all(|run| run.overlapping(&range).is_empty()), "seed {seed}: {version:?}");
        let left: Vec<_> = base(&version).iter().map(|t| t.file).collect();
        assert!(beside.iter().all(|file| left.contains(file)), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "picker.1")]
fn picker_1_a_plan_that_skips_an_older_table_is_refused() {
    let version = parse_version("L0: 8[c-k] / 7[a-f]  base: 3[a-d]");
    let mut parts = partitions(version.runs(), 0);
    parts[0].members.remove(1);
    plan_into_base(&version, &parts[0]);
}

/// Executes plans on versions without bytes: sizes add up, ranges stay within the plan's and are cut at its
/// fences. At the bottom, tombstones and numbers that no reader needs are dropped.
fn execute(version: &Version<()>, plan: &Plan, oldest_horizon: SeqNo, next: &mut u64) -> Version<()> {
    let metas: HashMap<_, _> = version.tables().map(|(_, t)| (t.file, t.meta.clone())).collect();
    let files: Vec<FileId> = plan.inputs.iter().flat_map(|i| i.files.clone()).collect();
    let run = match plan.output_run {
        OutputRun::Existing(run) => run,
        OutputRun::New => RunId(1_000_000 + *next),
    };
    *next += 1;
    let table = |file, meta: TableMeta| {
        let run = settled(version, plan, &meta.range).unwrap_or(run);
        AddedTable { file, level: plan.output_level, run, meta }
    };
    let added: Vec<AddedTable> = match plan.kind {
        PlanKind::TrivialMove => files.iter().map(|f| table(*f, metas[f].clone())).collect(),
        PlanKind::Rewrite => {
            let sum = |of: fn(&TableMeta) -> u64| files.iter().map(|f| of(&metas[f])).sum();
            let max_seq = files.iter().map(|f| metas[f].counts.max_seq).max().unwrap_or_default();
            let is_settled = plan.bottommost && max_seq <= oldest_horizon;
            let meta = TableMeta {
                blobs: Default::default(),
                file_bytes: sum(|meta| meta.file_bytes),
                range: plan.range.clone(),
                counts: Counts {
                    tombstones: if is_settled { 0 } else { sum(|meta| meta.counts.tombstones) },
                    range_tombstones: if is_settled { 0 } else { sum(|meta| meta.counts.range_tombstones) },
                    max_seq: if is_settled { SeqNo::ZERO } else { max_seq },
                    ..metas[&files[0]].counts
                },
                ..metas[&files[0]].clone()
            };
            // Cut at the fences, all pieces equal.
            let inside = |fence: &&Vec<u8>| **fence > plan.range.start && plan.range.end.admits(fence);
            let fences: Vec<_> = plan.fences.iter().filter(inside).cloned().collect();
            let ends = fences.iter().cloned().map(End::Excluded).chain([plan.range.end.clone()]);
            let starts = [plan.range.start.clone()].into_iter().chain(fences.iter().cloned());
            let pieces = fences.len() as u64 + 1;
            let piece = |(start, end)| {
                *next += 1;
                let meta = TableMeta {
                    file_bytes: meta.file_bytes / pieces,
                    range: KeyRange { start, end },
                    ..meta.clone()
                };
                table(FileId::new(1_000_000 + *next), meta)
            };
            starts.zip(ends).map(piece).collect()
        }
    };
    let opened = added.iter().map(|a: &AddedTable| (a.file, ())).collect();
    version.apply(&VersionEdit { removed: files, added, ..VersionEdit::default() }, opened)
}

#[test]
fn picker_3_random_versions_come_to_rest() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut version = Version::empty();
        let mut next = 0;
        for round in 0..12 {
            version = with_random_run(&version, &mut rng, RunId(round));
            let words = ["busy", "idle", "busy beyond", "busy wasted=100", "idle beyond"][rng.usize(0..5)];
            let settled = ["", " settled"][rng.usize(0..2)];
            let mut input = parse_input(&format!("{words}{settled}"));
            if rng.bool() {
                input.limits.compaction_bytes_max = 16 * MIB;
                input.limits.run_bytes = 1;
            }
            if rng.bool() {
                let files = version.tables().map(|(_, t)| t.file);
                input.skip = files.filter(|_| rng.u8(0..10) == 0).collect();
            }
            if rng.u8(0..4) == 0 {
                let files = version.tables().map(|(_, t)| t.file);
                input.put_off = files.filter(|_| rng.u8(0..10) == 0).collect();
            }
            for step in 0.. {
                let Some(plan) = pick(&version, &input) else { break };
                assert!(step < 200, "picker.3: seed {seed}");
                let mut files = plan.inputs.iter().flat_map(|i| &i.files);
                assert!(!files.any(|f| input.skip.contains(f)), "seed {seed}: {plan:?}");
                version = execute(&version, &plan, input.oldest_horizon, &mut next);
            }
            if words == "idle" && input.skip.is_empty() && input.put_off.is_empty() {
                assert!(version.runs().len() <= 1, "seed {seed}: {version:?}");
            }
        }
        let mut progress = ManualProgress::default();
        while let Some(plan) = manual::pick(&version, &Limits::default(), &|_| false, &mut progress) {
            version = execute(&version, &plan, SeqNo::MAX, &mut next);
        }
        assert!(version.runs().len() <= 1, "seed {seed}: {version:?}");
    }
}

fn with_random_run(version: &Version<()>, rng: &mut fastrand::Rng, run: RunId) -> Version<()> {
    let mut cuts: Vec<u8> = (0..rng.usize(1..5) * 2).map(|_| rng.u8(..)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let added: Vec<_> = cuts
        .chunks_exact(2)
        .enumerate()
        .map(|(i, pair)| {
            let marks = ["", "!", "-", "~"][rng.usize(0..4)];
            let text =
                format!("{}[{:03}-{:03}]{}{marks}", run.0 * 10 + i as u64, pair[0], pair[1], rng.u8(1..40));
            parse_table(&text, Level::L0, run)
        })
        .collect();
    let opened = added.iter().map(|a| (a.file, ())).collect();
    version.apply(&VersionEdit { added, ..VersionEdit::default() }, opened)
}
