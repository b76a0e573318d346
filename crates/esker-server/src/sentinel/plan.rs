//! What to do next, from what etcd and the servers say. Pure: nothing is asked and nothing is changed here.

use std::collections::HashMap;
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
    /// Why it has not said its state, although it has answered: a wrong password, or a missing right.
    pub(super) refusal: Option<String>,
}

/// Servers that take part in no elections, by their runs, and the commit that each has to have before it may.
/// `None`: that is not known yet.
pub(super) type Owed = HashMap<String, Option<u64>>;

/// Returns what servers without a ballot have to have, given the same at the look before. A server that has
/// lost its data may have confirmed everything that the primary had then. So the commit is the primary's
/// newest one at the second look that sees this run of the server.
pub(super) fn owed(record: &Record, views: &[View], before: &Owed) -> Owed {
    let leads = |view: &&View| Some(&view.name) == record.primary.as_ref();
    let lead = views.iter().find(leads).and_then(|view| view.status.as_ref());
    let lead = lead.filter(|status| status.role == "primary" && status.ballot == record.ballot);
    let outside = views.iter().filter_map(|view| view.status.as_ref()).filter(|status| status.ballot == 0);
    let commit = |status: &Status| match (before.get(&status.run), lead) {
        (Some(Some(commit)), _) => Some(*commit),
        (Some(None), Some(lead)) => Some(lead.at.seq),
        _ => None,
    };
    outside.map(|status| (status.run.clone(), commit(status))).collect()
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

/// Decides. `owed`: what servers without a ballot have to have before they join.
pub(super) fn plan(record: &Record, views: &[View], owed: &Owed, down_after: Duration) -> Step {
    if let Some(first) = &record.first {
        return begin(record, views, first);
    }
    // A sentinel writes a ballot to etcd before any server learns of it, and reads etcd after the servers.
    if newest_ballot(views) > record.ballot {
        return elect(record, views, "etcd has lost its newest record");
    }
    let Some(primary) = &record.primary else {
        return elect(record, views, "no primary leads");
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
        return match (&view.refusal, views.iter().find(hears)) {
            (Some(why), _) => Step::Stuck(format!("the primary {primary} refuses: {why}")),
            _ if view.silent < down_after => Step::Mend(Vec::new()),
            (None, Some(other)) => Step::Stuck(format!(
                "the primary {primary} does not answer here, and {} still hears it",
                other.name
            )),
            (None, None) => elect(record, views, "the primary does not answer"),
        };
    };
    let leads = status.role == "primary" && status.ballot == record.ballot;
    if !leads || !(Ballot { number: record.ballot, quorum: 0 }).has(status.at.epoch) {
        return elect(record, views, "the primary does not lead: it has lost its data, or was fenced");
    }
    let others = views.iter().filter(|view| view.name != *primary);
    Step::Mend(others.filter_map(|view| order(record, primary, view, status, owed)).collect())
}

/// The group has no primary in etcd yet. If servers have promised ballots, it is not new, and etcd has lost
/// its record. Then the server that leads goes on, whatever `--primary` says: it has all confirmed writes.
fn begin(record: &Record, views: &[View], first: &str) -> Step {
    let known: Vec<_> = views.iter().filter_map(|view| Some((view, view.status.as_ref()?))).collect();
    let needed = choice::needed(record.servers.len(), record.quorum);
    if known.len() < needed {
        let (count, refusals) = (known.len(), refusals(views));
        return Step::Stuck(format!("{count} servers answer where a group begins with {needed}{refusals}"));
    }
    let newest = newest_ballot(views);
    if newest == 0 {
        return Step::Begin(first.to_owned());
    }
    match known.iter().find(|(_, status)| status.role == "primary" && status.ballot == newest) {
        Some((view, _)) => Step::Begin(view.name.clone()),
        None => elect(record, views, "etcd has lost its record"),
    }
}

fn newest_ballot(views: &[View]) -> u32 {
    views.iter().filter_map(|view| view.status.as_ref()).map(|status| status.ballot).max().unwrap_or(0)
}

/// Returns the servers that refuse to say their state, as the end of a message.
fn refusals(views: &[View]) -> String {
    let refuses = |view: &View| view.refusal.as_ref().map(|why| format!("; {} refuses: {why}", view.name));
    views.iter().filter_map(refuses).collect()
}

fn order(record: &Record, primary: &str, view: &View, lead: &Status, owed: &Owed) -> Option<Order> {
    let status = view.status.as_ref()?;
    let name = view.name.clone();
    let follows = status.primary == primary;
    if status.ballot > 0 {
        return (status.ballot < record.ballot || !follows).then_some(Order::Follow(name));
    }
    if !follows {
        return Some(Order::Copy(name));
    }
    let has_caught_up = status.has_link
        && status.at.epoch == lead.at.epoch
        && owed.get(&status.run).is_some_and(|owed| owed.is_some_and(|commit| status.durable >= commit));
    has_caught_up.then_some(Order::Join(name))
}

/// Begins an election if enough servers can be asked.
fn elect(record: &Record, views: &[View], why: &str) -> Step {
    let is_member = |view: &&View| view.status.as_ref().is_some_and(|status| status.ballot > 0);
    let (count, needed) =
        (views.iter().filter(is_member).count(), choice::needed(record.servers.len(), record.quorum));
    if count < needed {
        let refusals = refusals(views);
        return Step::Stuck(format!(
            "{why}, and {count} servers answer where an election needs {needed}{refusals}"
        ));
    }
    Step::Elect(why.to_owned())
}

/// Returns a ballot above all that are known.
pub(super) fn next_ballot(record: &Record, views: &[View]) -> u32 {
    let known = views.iter().filter_map(|view| view.status.as_ref());
    let known = known.map(|status| status.ballot.max(Ballot::of(status.at.epoch)));
    known.fold(record.ballot, u32::max).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::{Epoch, Position};

    const DOWN_AFTER: Duration = Duration::from_secs(5);

    /// Parses `name ballot role primary durable`. `name -` does not answer, and `name !why` refuses.
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
            refusal: words[1].strip_prefix('!').map(str::to_owned),
        }
    }

    #[test]
    fn the_next_step_follows_from_what_is_seen() {
        let lead = "a 3 primary - 10";
        let owed = Owed::from([(String::new(), Some(9))]);
        // The servers --> the step. The primary is `a` in ballot 3, at commit 9 when it was last seen.
        for (servers, expected) in [
            ([lead, "b 3 replica a 9", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 3 waiting - 9", "c -"], "Mend([Follow(\"b\")])"),
            ([lead, "b 2 primary - 99", "c 2 replica b 9"], "Mend([Follow(\"b\"), Follow(\"c\")])"),
            ([lead, "b 0 primary - 0", "c 3 replica a 9"], "Mend([Copy(\"b\")])"),
            ([lead, "b 0 replica a 8", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 0 replica a 9", "c 3 replica a 9"], "Mend([Join(\"b\")])"),
            ([lead, "b 0 replica a 9 down", "c 3 replica a 9"], "Mend([])"),
            ([lead, "b 4 waiting - 9", "c 3 replica a 9"], "Elect(\"etcd has lost"),
            (["a !NOPERM", "b 3 replica a 9", "c 3 replica a 9"], "Stuck(\"the primary a refuses: NOPERM\")"),
            (
                ["a -", "b 3 replica a 9 down", "c 3 replica a 9 down"],
                "Elect(\"the primary does not answer\")",
            ),
            (["a -", "b 3 replica a 9 down", "c 0 replica a 9 down"], "Stuck"),
            (["a -", "b 3 replica a 9", "c 3 replica a 9 down"], "Stuck"),
            (["a -", "b 3 replica a 9 down", "c -"], "Stuck"),
            (["a 0 primary - 0", "b 3 replica a 9", "c 3 replica a 9"], "Elect"),
            (["a 3 waiting - 0", "b 3 replica a 9", "c 3 replica a 9"], "Elect"),
            (["a 4 primary - 0", "b 3 replica a 9", "c 3 replica a 9"], "Elect(\"etcd has lost"),
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
            let step = format!("{:?}", plan(&record, &views, &owed, DOWN_AFTER));
            assert!(step.starts_with(expected), "{servers:?}: {step}");
            let electing = Record { primary: None, ..record };
            let is_enough =
                views.iter().filter(|v| v.status.as_ref().is_some_and(|s| s.ballot > 0)).count() > 1;
            let step = plan(&electing, &views, &owed, DOWN_AFTER);
            assert_eq!(matches!(step, Step::Elect(_)), is_enough, "{servers:?}: {step:?}");
        }
    }
    fn new_group(first: &str) -> Record {
        let servers = ["a", "b", "c"].map(str::to_owned).to_vec();
        Record { servers, quorum: 1, ballot: 0, primary: None, last: None, first: Some(first.to_owned()) }
    }

    #[test]
    fn a_group_that_etcd_has_forgotten_keeps_its_primary() {
        for (servers, expected) in [
            (["a 0 primary - 10", "b 0 primary - 0", "c -"], "Begin(\"a\")"),
            (["a 0 primary - 10", "b -", "c -"], "Stuck"),
            (["a 1 primary - 10", "b 2 primary - 20", "c 2 replica b 20"], "Begin(\"b\")"),
            (["a 0 primary - 10", "b 2 primary - 20", "c 2 replica b 20"], "Begin(\"b\")"),
            (["a 1 primary - 10", "b -", "c 2 replica b 20"], "Elect(\"etcd has lost"),
        ] {
            let step = plan(&new_group("a"), &servers.map(view), &Owed::new(), DOWN_AFTER);
            assert!(format!("{step:?}").starts_with(expected), "{servers:?}: {step:?}");
        }
    }

    #[test]
    fn a_server_that_lost_its_data_owes_what_the_primary_had_after_that() {
        let record = Record { ballot: 3, primary: Some("a".to_owned()), first: None, ..new_group("a") };
        let views = ["a 3 primary - 10", "b 0 replica a 9", "c 3 replica a 9"].map(view);
        let run = String::new();
        let first = owed(&record, &views, &Owed::from([("an earlier run".to_owned(), Some(1))]));
        assert_eq!(first, Owed::from([(run.clone(), None)]), "it may have confirmed more than that");
        let second = owed(&record, &views, &first);
        assert_eq!(second, Owed::from([(run, Some(10))]));
        let later = ["a -", "b 0 replica a 9", "c 3 replica a 9"].map(view);
        assert_eq!(owed(&record, &later, &second), second);
    }
}
