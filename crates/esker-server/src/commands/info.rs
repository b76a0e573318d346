//! `INFO`: statistics of the server, in sections.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use esker::FigureValue;

use super::server::REDIS_VERSION;
use crate::base::clock;
use crate::clients::Client;
use crate::clients::pubsub::Hearing;
use crate::observe::process;
use crate::observe::rates::{Rate, WINDOWS};
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::server::Server;

/// Receives the name and the value of a statistic.
type Put<'p> = &'p mut dyn FnMut(&str, &dyn Display);

/// A section: name, title, whether it is shown by default, and the function that writes it.
type Section = (&'static str, &'static str, bool, fn(&Server, Put<'_>) -> Done);

const SECTIONS: [Section; 12] = [
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, persistence),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication),
    ("cpu", "CPU", true, cpu),
    ("commandstats", "Commandstats", false, commandstats),
    ("latencystats", "Latencystats", false, latencystats),
    ("errorstats", "Errorstats", true, errorstats),
    ("cluster", "Cluster", true, cluster),
    ("keyspace", "Keyspace", true, keyspace),
];

pub(super) fn info(cx: &mut Cx<'_>, request: &Request) -> Done {
    let asks = |name: &str| (1..request.len()).any(|at| request.is(at, name));
    let is_all = asks("all") || asks("everything");
    let is_default = request.len() == 1 || asks("default");
    let mut text = String::new();
    for (name, title, is_usual, figures) in SECTIONS {
        if is_all || asks(name) || is_default && is_usual {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {title}\r\n");
            figures(cx.server, &mut |name, value| _ = write!(text, "{name}:{value}\r\n"))?;
        }
    }
    cx.out.verbatim(&text);
    Ok(())
}

fn server(server: &Server, put: Put<'_>) -> Done {
    put("redis_version", &REDIS_VERSION);
    put("redis_git_sha1", &"00000000");
    put("redis_mode", &"standalone");
    put("server_name", &"esker");
    put("esker_version", &env!("CARGO_PKG_VERSION"));
    put("os", &std::env::consts::OS);
    put("arch_bits", &usize::BITS);
    put("process_id", &std::process::id());
    put("run_id", &server.life.run_id);
    put("tcp_port", &server.ports.plain.load(Ordering::Relaxed));
    put("server_time_usec", &clock::now_us());
    let up = server.life.started.elapsed().as_secs();
    put("uptime_in_seconds", &up);
    put("uptime_in_days", &(up / 86_400));
    put("hz", &10);
    put("executable", &"");
    let file = server.options.given.file.as_ref().map(|path| path.display().to_string());
    put("config_file", &file.unwrap_or_default());
    Ok(())
}

fn clients(server: &Server, put: Put<'_>) -> Done {
    let clients = server.clients.list();
    let count = |is_so: &dyn Fn(&Client) -> bool| clients.iter().filter(|client| is_so(client)).count();
    put("connected_clients", &clients.len());
    put("maxclients", &server.config.connections.clients());
    put("blocked_clients", &(server.sequencer.waiters() + server.clients.pause.waiting()));
    let [keys, minded] = server.sequencer.waited_keys();
    put("total_blocking_keys", &keys);
    put("total_blocking_keys_on_nokey", &minded);
    put("pubsub_clients", &count(&Client::is_subscribed));
    put("tracking_clients", &server.clients.tracking.clients());
    let watched = |client: &Client| client.counts.watched.load(Ordering::Relaxed);
    put("watching_clients", &count(&|client| watched(client) > 0));
    put("total_watched_keys", &server.watches.len());
    Ok(())
}

fn memory(server: &Server, put: Put<'_>) -> Done {
    let used = process::memory();
    put("used_memory", &used);
    put("used_memory_human", &format_args!("{:.2}M", used as f64 / f64::from(1 << 20)));
    put("used_memory_rss", &used);
    put("used_memory_peak", &process::memory_peak().max(used));
    put("maxmemory", &server.config.number("maxmemory"));
    put("maxmemory_policy", &"noeviction");
    put("mem_fragmentation_ratio", &"1.00");
    put("number_of_cached_scripts", &server.scripts.len());
    put("mem_allocator", &"libc");
    Ok(())
}

/// The figures of the engine that have a value, with their names here.
pub(super) fn engine_figures(server: &Server) -> Vec<(String, FigureValue)> {
    let has_value = |value: &FigureValue| {
        value.number().is_some() || matches!(value, FigureValue::Latency(latency) if latency.samples > 0)
    };
    let figures = server.store.figures().into_iter().filter(|figure| has_value(&figure.value));
    figures.map(|figure| (format!("engine_{}", figure.name), figure.value)).collect()
}

fn persistence(server: &Server, put: Put<'_>) -> Done {
    put("loading", &0);
    put("rdb_changes_since_last_save", &server.observed.stats.changes.get());
    put("rdb_bgsave_in_progress", &0);
    put("rdb_last_save_time", &server.databases.saved.load(Ordering::Relaxed));
    put("rdb_last_bgsave_status", &"ok");
    put("aof_enabled", &1);
    put("aof_rewrite_in_progress", &0);
    put("aof_last_bgrewrite_status", &"ok");
    put("aof_last_write_status", &"ok");
    for (name, value) in engine_figures(server) {
        put(&name, &value);
    }
    Ok(())
}

fn stats(server: &Server, put: Put<'_>) -> Done {
    let stats = &server.observed.stats;
    put("total_connections_received", &stats.connections.get());
    put("total_commands_processed", &stats.commands.get());
    put(
        "instantaneous_ops_per_sec",
        &format_args!("{:.0}", server.observed.rates.average(Rate::Commands, 1)),
    );
    put("total_net_input_bytes", &stats.bytes_in.get());
    put("total_net_output_bytes", &stats.bytes_out.get());
    put("rejected_connections", &stats.refused.get());
    put("expired_keys", &stats.expired.get());
    put("expired_subkeys", &stats.expired_fields.get());
    put("evicted_keys", &0);
    put("evicted_clients", &stats.ended_for_memory.get());
    put("keyspace_hits", &stats.hits.get());
    put("keyspace_misses", &stats.misses.get());
    put("pubsub_channels", &server.clients.pubsub.channels(Hearing::Channel, None).len());
    put("pubsub_patterns", &server.clients.pubsub.patterns());
    let [keys, items, prefixes] = server.clients.tracking.sizes();
    put("tracking_total_keys", &keys);
    put("tracking_total_items", &items);
    put("tracking_total_prefixes", &prefixes);
    put("total_error_replies", &stats.errors.get());
    put("total_commits", &stats.commits.get());
    for rate in Rate::ALL {
        for window in WINDOWS {
            let average = server.observed.rates.average(rate, window);
            put(&format!("{}_per_sec_{window}s", rate.name()), &format_args!("{average:.2}"));
        }
    }
    Ok(())
}

fn replication(server: &Server, put: Put<'_>) -> Done {
    for (name, value) in super::replication::figures(server) {
        put(&name, &value);
    }
    Ok(())
}

fn cpu(_: &Server, put: Put<'_>) -> Done {
    let names = ["used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"];
    for (name, seconds) in names.iter().zip(process::cpu_seconds()) {
        put(name, &format_args!("{seconds:.6}"));
    }
    Ok(())
}

fn commandstats(server: &Server, put: Put<'_>) -> Done {
    for (name, stats) in server.commands.stats() {
        let (calls, micros) = (stats.calls.get(), stats.micros.get());
        if calls + stats.rejected.get() > 0 {
            let each = micros as f64 / calls.max(1) as f64;
            let (rejected, failed) = (stats.rejected.get(), stats.failed.get());
            put(
                &format!("cmdstat_{name}"),
                &format_args!(
                    "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
                ),
            );
        }
    }
    Ok(())
}

fn latencystats(server: &Server, put: Put<'_>) -> Done {
    let commands = server.commands.stats().map(|(name, stats)| (name, &stats.latency));
    for (name, latency) in commands.chain([("commit", &server.observed.commit_latency)]) {
        if latency.count() > 0 {
            let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|p| latency.percentile(p).unwrap_or(0));
            put(
                &format!("latency_percentiles_usec_{name}"),
                &format_args!("p50={p50},p99={p99},p99.9={p999}"),
            );
        }
    }
    Ok(())
}

fn errorstats(server: &Server, put: Put<'_>) -> Done {
    for (code, count) in server.observed.stats.error_codes() {
        put(&format!("errorstat_{code}"), &format_args!("count={count}"));
    }
    Ok(())
}

fn cluster(_: &Server, put: Put<'_>) -> Done {
    put("cluster_enabled", &0);
    Ok(())
}

fn keyspace(server: &Server, put: Put<'_>) -> Done {
    for data in server.open_databases() {
        let (keys, expires) = (server.store.len(&data.main)?, server.store.len(&data.ttl)?);
        if keys > 0 {
            put(&format!("db{}", data.number), &format_args!("keys={keys},expires={expires},avg_ttl=0"));
        }
    }
    Ok(())
}
