//! The loop of a sentinel: looks, plans, acts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::SentinelOptions;
use super::board::{Board, Look};
use super::choice::{choose, needed};
use super::etcd::{Etcd, Lease};
use super::plan::{Order, Owed, Step, View, next_ballot, owed, plan};
use super::record::{Record, parse_source};
use super::servers::{Failed, Node};
use crate::base::clock;
use crate::observe::trace;

/// How long the lease of the acting sentinel lasts without being extended.
const LEASE: Duration = Duration::from_secs(5);
/// How long a change of the primary that was asked for may wait for a replica to catch up.
const CATCH_UP: Duration = Duration::from_secs(3);

pub(super) struct Watch {
    board: Arc<Board>,
    etcd: Etcd,
    nodes: Vec<Node>,
    lease: Option<Lease>,
    /// What servers without a ballot had to have at the last look, if this sentinel acted.
    owed: Owed,
}

/// The record, and its revision in etcd.
struct Known {
    record: Record,
    revision: i64,
}

impl Watch {
    pub(super) fn open(options: SentinelOptions) -> Result<Self, String> {
        let etcd = Etcd::new(&options.etcd)?;
        let names = options.servers.iter().map(ToString::to_string);
        let nodes = names.map(|name| Node::new(name, options.login.clone())).collect();
        let watch =
            Watch { board: Arc::new(Board::new(options)), etcd, nodes, lease: None, owed: Owed::new() };
        watch.begin()?;
        Ok(watch)
    }

    pub(super) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    fn key(&self, name: &str) -> String {
        format!("/esker/{}/{name}", self.board.options.name)
    }

    /// Writes the first record of a group, or checks that the options fit the record that is there.
    fn begin(&self) -> Result<(), String> {
        let options = &self.board.options;
        if self.read()?.is_some() {
            return Ok(());
        }
        let first = match &options.primary {
            Some(primary) => primary.to_string(),
            None => self.find_first()?,
        };
        let record = Record {
            servers: self.nodes.iter().map(|node| node.name.clone()).collect(),
            quorum: options.quorum,
            ballot: 0,
            primary: None,
            last: None,
            first: Some(first),
        };
        // If another sentinel was first, its record stands.
        match self.etcd.put_if(&self.key("record"), 0, &encode(&record)?, None)? {
            Some(_) => Ok(()),
            None => self.begin(),
        }
    }

    /// Returns the only primary among the servers.
    fn find_first(&self) -> Result<String, String> {
        let views = self.probe();
        let is_primary = |view: &&View| view.status.as_ref().is_some_and(|status| status.role == "primary");
        let primaries: Vec<_> = views.iter().filter(is_primary).map(|view| view.name.clone()).collect();
        match &primaries[..] {
            [only] if views.iter().all(|view| view.status.is_some()) => Ok(only.clone()),
            _ => Err("the group is new: name the server with the data by --primary HOST:PORT".to_owned()),
        }
    }

    fn read(&self) -> Result<Option<Known>, String> {
        let found = self.etcd.get(&self.key("record"))?;
        let decode = |value: Vec<u8>| {
            let record = Record::decode(&value);
            let record = record
                .map_err(|why| format!("the record {} in etcd is damaged: {why}", self.key("record")))?;
            self.check(&record)?;
            Ok(Known { record, revision: found.revision })
        };
        found.value.map(decode).transpose()
    }

    /// Checks that the options fit the record: an election among other servers could lose writes.
    fn check(&self, record: &Record) -> Result<(), String> {
        let options = &self.board.options;
        let names = self.nodes.iter().map(|node| &node.name);
        if record.has_servers(names) && record.quorum == options.quorum {
            return Ok(());
        }
        Err(format!(
            "the group {} has the servers {} and the quorum {}. To change them, stop all sentinels and remove the key {} from etcd; then start one with --primary",
            options.name,
            record.servers.join(","),
            record.quorum,
            self.key("record")
        ))
    }

    fn write(&self, known: &mut Known, record: Record) -> Result<(), String> {
        let written = self.etcd.put_if(&self.key("record"), known.revision, &encode(&record)?, None)?;
        known.revision = written.ok_or("another sentinel has begun an election")?;
        known.record = record;
        Ok(())
    }

    /// Asks all servers at once.
    fn probe(&self) -> Vec<View> {
        let view = |node: &Node| {
            let (status, refusal) = match node.status() {
                Ok(status) => (Some(status), None),
                Err(Failed::Silent(_)) => (None, None),
                Err(Failed::Refused(why)) => (None, Some(why)),
            };
            View { name: node.name.clone(), status, silent: node.silent(), refusal }
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = self.nodes.iter().map(|node| scope.spawn(move || view(node))).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
        })
    }

    /// Runs until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut said = None;
        while !stop.load(Ordering::Relaxed) {
            let began = clock::moment();
            let done = self.round();
            if let Err(why) = &done
                && said.as_ref() != Some(why)
            {
                trace::warn("the group needs attention", None, why);
            }
            said = done.err();
            let rest = self.board.options.interval.saturating_sub(began.elapsed());
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own that waits for other machines"
            )]
            std::thread::sleep(rest.max(Duration::from_millis(10)));
        }
        if let Some(lease) = self.lease {
            // Otherwise it ends by itself.
            let _ = self.etcd.revoke(lease);
        }
    }

    /// Looks, shows what it sees, and acts if it is this sentinel's turn.
    fn round(&mut self) -> Result<(), String> {
        let views = self.probe();
        let seen = self.look();
        let mut look = Look { views, ..self.board.look() };
        let (known, acts) = match seen {
            Ok((known, sentinels, acts)) => {
                (look.record, look.sentinels, look.acts) =
                    (Some(known.record.clone()), sentinels, acts.clone());
                (known, acts)
            }
            Err(why) => {
                look.trouble = Some(why.clone());
                self.board.show(look);
                return Err(why);
            }
        };
        let is_mine = acts.as_deref() == Some(&*self.board.options.announce.to_string());
        let done = match is_mine {
            true => self.act(known, &look.views),
            false => {
                // What it saw earlier may be out of date once it acts again.
                self.owed.clear();
                Ok(())
            }
        };
        look.trouble = done.as_ref().err().cloned();
        self.board.show(look);
        done
    }

    /// Reads the record and the list of sentinels, and takes part in choosing the acting one.
    fn look(&mut self) -> Result<(Known, Vec<String>, Option<String>), String> {
        let me = self.board.options.announce.to_string();
        let lease = match self.lease {
            Some(lease) if self.etcd.keep(lease)? => lease,
            _ => {
                let lease = self.etcd.grant(LEASE)?;
                self.lease = Some(lease);
                lease
            }
        };
        let own = self.key(&format!("sentinels/{me}"));
        if self.etcd.get(&own)?.revision == 0 {
            self.etcd.put_if(&own, 0, me.as_bytes(), Some(lease))?;
        }
        let acting = self.key("acts");
        let found = self.etcd.get(&acting)?;
        let acts = match found.value {
            Some(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            None => self.etcd.put_if(&acting, 0, me.as_bytes(), Some(lease))?.map(|_| me),
        };
        let known =
            self.read()?.ok_or("the record of the group was removed from etcd: start this sentinel again")?;
        let sentinels = self.etcd.prefix(&self.key("sentinels/"))?;
        let sentinels = sentinels.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        Ok((known, sentinels, acts))
    }

    fn act(&mut self, mut known: Known, views: &[View]) -> Result<(), String> {
        let before = std::mem::take(&mut self.owed);
        let down_after = self.board.options.down_after;
        if self.board.take_failover() {
            self.catch_up(&known.record)?;
            let views = self.probe();
            return self.elect(&mut known, &views, "a client asks for it");
        }
        let owed = owed(&known.record, views, &before);
        match plan(&known.record, views, &owed, down_after) {
            Step::Begin(first) => self.lead_first(&mut known, views, &first),
            Step::Elect(why) => self.elect(&mut known, views, &why),
            Step::Stuck(why) => Err(why),
            Step::Mend(orders) => {
                self.owed = owed;
                let mend = |order| self.mend(&known.record, order, views);
                let mended: Vec<_> = orders.iter().map(mend).collect();
                mended.into_iter().collect()
            }
        }
    }

    /// Has the server with the data lead for the first time.
    fn lead_first(&self, known: &mut Known, views: &[View], first: &str) -> Result<(), String> {
        let record = Record { ballot: next_ballot(&known.record, views), ..known.record.clone() };
        self.write(known, record)?;
        let record = known.record.clone();
        let (ballot, quorum) = (record.ballot.to_string(), record.quorum.to_string());
        self.node(first)?.order(&["ES.ELECT", "BEGIN", &ballot, &quorum])?;
        self.lead(known, first)
    }

    /// Has another server lead.
    fn elect(&self, known: &mut Known, views: &[View], why: &str) -> Result<(), String> {
        let old = &known.record;
        let last = old.primary.clone().or_else(|| old.last.clone());
        let record =
            Record { ballot: next_ballot(old, views), primary: None, last, first: None, ..old.clone() };
        trace::warn("an election begins", None, &format!("ballot {}: {why}", record.ballot));
        self.write(known, record)?;
        let record = known.record.clone();
        let fence = |node: &Node| {
            let is_silent = |view: &View| view.name == node.name && view.status.is_none();
            node.fence(record.ballot, views.iter().any(is_silent))
        };
        let fenced = std::thread::scope(|scope| {
            let asked: Vec<_> = self.nodes.iter().map(|node| scope.spawn(move || fence(node))).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()?.ok()).collect()
        });
        let needed = needed(record.servers.len(), record.quorum);
        let leads = choose(fenced, needed, record.last.as_ref());
        let leads =
            leads.map_err(|count| format!("{count} servers were fenced where {needed} are needed"))?;
        self.lead(known, &leads)
    }

    /// Has a fenced server lead, and the others follow it.
    fn lead(&self, known: &mut Known, leads: &str) -> Result<(), String> {
        let record = Record { primary: Some(leads.to_owned()), first: None, ..known.record.clone() };
        let (ballot, quorum) = (record.ballot.to_string(), record.quorum.to_string());
        self.node(leads)?.order(&["ES.ELECT", "LEAD", &ballot, &quorum])?;
        self.write(known, record)?;
        trace::warn("a primary leads", None, &format!("{leads} in ballot {ballot}"));
        // Those that this does not reach get it with the next look.
        let source = parse_source(leads).ok_or("the address has no port")?;
        let port = source.port.to_string();
        std::thread::scope(|scope| {
            for node in self.nodes.iter().filter(|node| node.name != leads) {
                let words = ["ES.ELECT", "FOLLOW", &ballot, &source.host, &port];
                scope.spawn(move || node.order(&words));
            }
        });
        Ok(())
    }

    fn node(&self, name: &str) -> Result<&Node, String> {
        self.nodes
            .iter()
            .find(|node| node.name == name)
            .ok_or_else(|| format!("{name} is not one of the servers"))
    }

    /// Gives an order.
    fn mend(&self, record: &Record, order: &Order, views: &[View]) -> Result<(), String> {
        let source = record.primary().ok_or("no primary leads")?;
        let (ballot, port) = (record.ballot.to_string(), source.port.to_string());
        let (name, done) = match order {
            Order::Follow(name) => {
                let node = self.node(name)?;
                let is_older = |view: &View| {
                    view.name == *name
                        && view.status.as_ref().is_some_and(|status| status.ballot < record.ballot)
                };
                let fenced = match views.iter().any(is_older) {
                    true => node.fence(record.ballot, false).map(drop),
                    false => Ok(()),
                };
                (
                    name,
                    fenced.and_then(|()| node.order(&["ES.ELECT", "FOLLOW", &ballot, &source.host, &port])),
                )
            }
            Order::Copy(name) => (name, self.node(name)?.order(&["REPLICAOF", &source.host, &port])),
            Order::Join(name) => {
                let view = views.iter().find(|view| view.name == *name);
                let at = view.and_then(|view| view.status.as_ref()).ok_or("it does not answer")?;
                let (epoch, seq) = (at.at.epoch.to_string(), at.durable.to_string());
                (name, self.node(name)?.order(&["ES.ELECT", "JOIN", &ballot, &epoch, &seq]))
            }
        };
        done.map_err(|why| format!("{name}: {why}"))
    }

    /// Holds back writes at the primary until a replica has everything.
    fn catch_up(&self, record: &Record) -> Result<(), String> {
        let Some(primary) = &record.primary else { return Ok(()) };
        let ms = CATCH_UP.as_millis().to_string();
        self.node(primary)?.order(&["CLIENT", "PAUSE", &ms, "WRITE"])?;
        let end = clock::moment() + CATCH_UP;
        loop {
            let views = self.probe();
            let of = |view: &View| view.status.clone().map(|status| (view.name == *primary, status));
            let (lead, others): (Vec<_>, Vec<_>) = views.iter().filter_map(of).partition(|(leads, _)| *leads);
            let newest = lead.first().map(|(_, status)| status.at.seq);
            let is_member =
                |status: &super::servers::Status| status.ballot == record.ballot && status.has_link;
            if others.iter().any(|(_, status)| is_member(status) && Some(status.durable) >= newest) {
                return Ok(());
            }
            if clock::moment() > end {
                // The pause ends by itself.
                return Err("no replica has caught up: the primary stays".to_owned());
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own that waits for other machines"
            )]
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn encode(record: &Record) -> Result<Vec<u8>, String> {
    serde_json::to_vec(record).map_err(|error| error.to_string())
}
