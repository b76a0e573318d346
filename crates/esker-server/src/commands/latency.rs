//! `LATENCY`: how long commands take, and which took long.

use crate::command::spec::Group::Server;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("latency", -2, ADMIN | NO_SCRIPT, NO_KEYS, Server, "histogram [command ...] | latest | history event | reset [event ...] | doctor", "Shows how long commands took, and events longer than latency-monitor-threshold.", latency).own_flags(&[(&["help"], 0)]),
];

fn latency(cx: &mut Cx<'_>, request: &Request) -> Done {
    let events = &cx.server.observed.latency_events;
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"histogram", _) => histogram(cx, request),
        (b"latest", 2) => {
            let all = events.all();
            cx.out.array(all.len());
            for (name, event) in all {
                let (second, ms) = event.moments.back().copied().unwrap_or_default();
                cx.out.array(4);
                cx.out.bulk(name.as_bytes());
                for n in [second, ms, event.max_ms] {
                    cx.out.int(n as i64);
                }
            }
        }
        (b"history", 3) => {
            let all = events.all();
            let found = all.iter().find(|(name, _)| request.is(2, name));
            let moments = found.map(|(_, event)| event.moments.iter().copied().collect::<Vec<_>>());
            let moments = moments.unwrap_or_default();
            cx.out.array(moments.len());
            for (second, ms) in moments {
                cx.out.array(2);
                cx.out.int(second as i64);
                cx.out.int(ms as i64);
            }
        }
        (b"reset", len) => {
            let is_meant = |name: &str| len == 2 || (2..len).any(|at| request.is(at, name));
            cx.out.count(events.reset(is_meant));
        }
        (b"doctor", 2) => {
            let advice = doctor(cx);
            cx.out.verbatim(&advice);
        }
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}

fn histogram(cx: &mut Cx<'_>, request: &Request) {
    let is_meant = |name: &str| request.len() == 2 || (2..request.len()).any(|at| request.is(at, name));
    let commands = cx.server.commands.stats();
    let found: Vec<_> =
        commands.filter(|(name, stats)| is_meant(name) && stats.latency.count() > 0).collect();
    cx.out.map(found.len());
    for (name, stats) in found {
        cx.out.bulk(name.as_bytes());
        cx.out.map(2);
        cx.out.bulk(b"calls");
        cx.out.int(stats.latency.count() as i64);
        cx.out.bulk(b"histogram_usec");
        let powers = stats.latency.powers();
        cx.out.map(powers.len());
        for (end, count) in powers {
            cx.out.int(end as i64);
            cx.out.int(count as i64);
        }
    }
}

/// Replies with advice for operators.
fn doctor(cx: &Cx<'_>) -> String {
    let limit = cx.server.config.latency_ms();
    if limit == 0 {
        return "Nothing is noted: CONFIG SET latency-monitor-threshold 100 notes what takes 100 ms or more.\n".to_owned();
    }
    let mut text = String::new();
    for (name, event) in cx.server.observed.latency_events.all() {
        let all: Vec<_> = event.moments.iter().map(|(_, ms)| ms).collect();
        let average = all.iter().copied().sum::<u64>() as f64 / all.len().max(1) as f64;
        let advice = match name {
            "commit" => {
                "The disk is slow to sync, or busy: see engine_pending_compaction_bytes in INFO, and --fsync."
            }
            "command" => "SLOWLOG GET has the commands.",
            _ => {
                "The processors may be busy, or data comes from the disk: see engine_cache_misses in INFO, and --memory."
            }
        };
        text += &format!(
            "{name}: {} times {limit} ms or more, on average {average:.0} ms, at most {} ms. {advice}\n",
            all.len(),
            event.max_ms
        );
    }
    if text.is_empty() {
        text = format!("Nothing took {limit} ms or more.\n");
    }
    text
}
