//! Health for each combination of failures, as a table.

use super::*;

/// `closed`, `poisoned`, or work that fails: its name, `!` if for want of space, since when.
fn observed(words: &str) -> Observed {
    let mut observed = Observed { now: Duration::from_secs(100), ..Observed::default() };
    for word in words.split_whitespace() {
        match word {
            "closed" => observed.closed = true,
            "poisoned" => observed.poisoned = Some("it burst".to_owned()),
            failing => {
                let (name, since) = failing.split_once('@').unwrap();
                let work = [Work::Log, Work::Flush, Work::Manifest, Work::Compaction];
                let is_it = |work: &Work| work.to_string() == name.trim_end_matches('!');
                let failures = Failures {
                    since: Duration::from_secs(since.parse().unwrap()),
                    times: 7,
                    is_no_space: name.ends_with('!'),
                    error: "why".to_owned(),
                };
                observed.failing.push((work.into_iter().find(is_it).unwrap(), failures));
            }
        }
    }
    observed
}

#[test]
fn the_worst_state_is_reported() {
    let table = "
                                          | ok
        flush@60                          | retrying: flush fails for 40 s, 7 times: why
        flush!@60                         | no space: flush fails for 40 s, 7 times: why
        log@90 flush!@60                  | no space: flush fails for 40 s, 7 times: why
        log!@99 flush!@60 compaction!@1   | no space: log fails for 1 s, 7 times: why
        flush@60 manifest@50 compaction@1 | retrying: flush fails for 40 s, 7 times: why
        manifest@50 compaction@1          | retrying: manifest fails for 50 s, 7 times: why
        compaction@200                    | retrying: compaction fails for 0 s, 7 times: why
        poisoned log!@1                   | poisoned, reopen to write again: it burst
        closed poisoned flush@1           | closed
    ";
    for line in table.lines().filter(|line| line.contains('|')) {
        let (known, expected) = line.split_once('|').unwrap();
        assert_eq!(judge(observed(known)).to_string(), expected.trim(), "{known}");
    }
}
