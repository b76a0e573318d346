//! What to do next, from what etcd and the servers say. Pure: nothing is asked and nothing is changed here.

use std::time::Duration;

use super::choice;
use super::record::Record;
use super::servers::Status;
use crate::replication::Ballot;

/// What is known of a server.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// `host:port`.
    pub(super) name: String,
    /// Its state, if it has just answered.
    pub(super) status: Option<Status>,
    /// The time since it last answered.
    pub(super) silent: Duration,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The server with the data leads for the first time.
    Begin(String),
    /// Another server leads, for this reason.
    Elect(String),
    /// The primary leads; these servers do not follow it yet.
    Mend(Vec<Order>),
    /// Nothing can be done, for this reason.
    Stuck(String),
}

/// What a server has to do. The first field is its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Promise the ballot and follow the primary.
    Follow(String),
    /// Follow the primary without taking part in elections, because it has to catch up first.
    Copy(String),
    /// Take part in elections.
    Join(String),
}

/// Decides. `before`: the newest commit of the primary at the last look.
pub(super) fn plan(record: &Record, views: &[View], before: Option<u64>, down_after: Duration) -> Step {
    let Some(primary) = &record.primary else {
        return match &record.first {
            Some(first) => Step::Begin(first.clone()),
            None => elect(record, views, "no primary leads"),
        };
    };
    let Some(view) = views.iter().find(|view| view.name == *primary) else {
        return Step::Stuck(format!("the primary {primary} is not one of the servers"));
    };
    let Some(status) = &view.status else {
        let hears = |view: &&View| {
            let status = view.status.as_ref().filter(|status| status.primary == *primary);
            status
                .is_some_and(|status| status.has_link && status.silent.is_some_and(|time| time < down_after))
        };
        return match views.iter().find(hears) {
            _ if view.silent < down_after => Step::Mend(Vec::new()),
            Some(other) => Step::Stuck(format!(
                "the primary {primary} does not answer here, and {} still hears it",
                other.name
            )),
            None => elect(record, views, "the primary does not answer"),
        };
    };
    if status.ballot > record.ballot {
        return Step::Stuck("another sentinel has begun an election".to_owned());
    }
    let leads = status.role == "primary" && status.ballot == record.ballot;
    if !leads || !(Ballot { number: record.ballot, quorum: 0 }).has(status.at.epoch) {
        return elect(record, views, "the primary does not lead: it has lost its data, or was fenced");
    }
    let others = views.iter().filter(|view| view.name != *primary);
    Step::Mend(others.filter_map(|view| order(record, primary, view, status, before)).collect())
}

fn order(record: &Record, primary: &str, view: &View, lead: &Status, before: Option<u64>) -> Option<Order> {
    let status = view.status.as_ref()?;
    let name = view.name.clone();
    let follows = status.primary == primary;
    if status.ballot > record.ballot {
        return None;
    }
    if status.ballot > 0 {
        return (status.ballot < record.ballot || !follows).then_some(Order::Follow(name));
    }
    if !follows {
        return Some(Order::Copy(name));
    }
    // What was confirmed before it lost its data is older than the last look.
    let has_caught_up = status.has_link
        && status.at.epoch == lead.at.epoch
        && before.is_some_and(|before| status.durable >= before);
    has_caught_up.then_some(Order::Join(name))
}

/// Begins an election if enough servers can be asked.
fn elect(record: &Record, views: &[View], why: &str) -> Step {
    let is_member = |view: &&View| view.status.as_ref().is_some_and(|status| status.ballot > 0);
    let (count, needed) =
        (views.iter().filter(is_member).count(), choice::needed(record.servers.len(), record.quorum));
    if count < needed {
        return Step::Stuck(format!("{why}, and {count} servers answer where an election needs {needed}"));
    }
    Step::Elect(why.to_owned())
}

/// Returns a ballot above all that are known.
pub(super) fn next_ballot(record: &Record, views: &[View]) -> u32 {
    let known = views.iter().filter_map(|view| view.status.as_ref());
    let known = known.map(|status| status.ballot.max(Ballot::of(status.at.epoch)));
    known.fold(record.ballot, u32::max) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::{Epoch, Position};

    const DOWN_AFTER: Duration = Duration::from_secs(5);

    /// Parses `name ballot role primary durable`, or `name -`: it does not answer.
    fn view(text: &str) -> View {
        let words: Vec<&str> = text.split(' ').collect();
        let status = |words: &[&str]| Status {
            ballot: words[1].parse().unwrap(),
            role: words[2].to_owned(),
            primary: words[3].trim_matches('-').to_owned(),
            at: Position { epoch: Epoch { number: 3 << 12, mark: 1 }, seq: 10 },
            durable: words[4].parse().unwrap(),
            has_link: words.get(5).is_none(),
            silent: Some(Duration::from_millis(100)),
            run: String::new(),
        };
        View {
            name: words[0].to_owned(),
            status: (words.len() > 2).then(|| status(&words)),
            silent: if words.len() > 2 { Duration::ZERO } else { DOWN_AFTER },
        }
    }

    #[test]
    fn the_next_step_follows_from_what_is_seen() {
        let lead = "a 3 primary - 10";
        // The servers --> the step. The primary is `a` in ballot 3, at commit 9 when it was last seen.
        for (servers, expected) in [
            ([lead, "b 3 replica a 9", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 3 waiting - 9", "c -"], "Mend([Follow(\"b\")])"),
            ([lead, "b 2 primary - 99", "c 2 replica b 9"], "Mend([Follow(\"b\"), Follow(\"c\")])"),
            ([lead, "b 0 primary - 0", "c 3 replica a 9"], "Mend([Copy(\"b\")])"),
            ([lead, "b 0 replica a 8", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 0 replica a 9", "c 3 replica a 9"], "Mend([Join(\"b\")])"),
            ([lead, "b 0 replica a 9 down", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 4 waiting - 9", "c 3 replica a 9"], "Mend([])"),
            (
                ["a -", "b 3 replica a 9 down", "c 3 replica a 9 down"],
                "Elect(\"the primary does not answer\")",
            ),
            (["a -", "b 3 replica a 9 down", "c 0 replica a 9 down"], "Stuck"),
            (["a -", "b 3 replica a 9", "c 3 replica a 9 down"], "Stuck"),
            (["a -", "b 3 replica a 9 down", "c -"], "Stuck"),
            (["a 0 primary - 0", "b 3 replica a 9", "c 3 replica a 9"], "Elect"),
            (["a 3 waiting - 0", "b 3 replica a 9", "c 3 replica a 9"], "Elect"),
            (["a 4 primary - 0", "b 3 replica a 9", "c 3 replica a 9"], "Stuck"),
        ] {
            let names = ["a", "b", "c"].map(str::to_owned).to_vec();
            let record = Record {
                servers: names,
                quorum: 1,
                ballot: 3,
                primary: Some("a".to_owned()),
                last: None,
                first: None,
            };
            let views = servers.map(view);
            let step = format!("{:?}", plan(&record, &views, Some(9), DOWN_AFTER));
            assert!(step.starts_with(expected), "{servers:?}: {step}");
            let electing = Record { primary: None, ..record };
            let is_enough =
                views.iter().filter(|v| v.status.as_ref().is_some_and(|s| s.ballot > 0)).count() > 1;
            let step = plan(&electing, &views, Some(9), DOWN_AFTER);
            assert_eq!(matches!(step, Step::Elect(_)), is_enough, "{servers:?}: {step:?}");
        }
    }
}
