//! `esker sentinel`: watches a group of servers.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use esker_server::{SentinelOptions, Source, run_sentinel};

use super::serve::source;
use crate::Answer;
use crate::failure::{Failure, Result};

/// The end of its help.
pub(crate) const HELP: &str = "\
Clients find the primary by Redis Sentinel's protocol: give them the name, and the addresses of the
sentinels. The elections are kept in etcd. Run a sentinel on each of three machines, with the same
servers and the same quorum.

Examples:
  esker sentinel --name main --servers db1:6379,db2:6379,db3:6379 --primary db1:6379 \\
      --etcd http://db1:2379,http://db2:2379,http://db3:2379 --announce 10.0.0.1:26379
  redis-cli -p 26379 sentinel get-master-addr-by-name main
  redis-cli -p 26379 sentinel failover main";

/// What a sentinel watches, and where it listens.
#[derive(Debug, Args)]
pub(crate) struct SentinelArgs {
    /// Name of the group, which clients ask for
    #[arg(long, value_name = "NAME")]
    name: String,
    /// All servers, by addresses that the others and the clients can reach
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = source, required = true)]
    servers: Vec<Source>,
    /// Number of replicas that have a write on their disks before it is confirmed [default: they and the
    /// primary are a majority]
    #[arg(long, value_name = "N")]
    quorum: Option<usize>,
    /// The server with the data, when the group is new
    #[arg(long, value_name = "HOST:PORT", value_parser = source)]
    primary: Option<Source>,
    /// Addresses of etcd
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    etcd: Vec<String>,
    /// Milliseconds without an answer after which the primary counts as failed
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(100..))]
    down_after: u64,
    /// Milliseconds between two looks at the servers
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..))]
    interval: u64,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:26379")]
    bind: SocketAddr,
    /// Address at which clients and other sentinels reach this one [default: that of --bind]
    #[arg(long, value_name = "ADDRESS")]
    announce: Option<SocketAddr>,
    /// User to log in as at the servers
    #[arg(long, value_name = "NAME", default_value = "default")]
    user: String,
    /// Password of this user
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    #[cfg(feature = "log")]
    #[command(flatten)]
    log: super::serve::log::LogArgs,
}

pub(super) fn run(args: &SentinelArgs) -> Result<Answer> {
    let options = SentinelOptions {
        name: args.name.clone(),
        servers: args.servers.clone(),
        quorum: args.quorum.unwrap_or(args.servers.len() / 2),
        primary: args.primary.clone(),
        etcd: args.etcd.clone(),
        down_after: Duration::from_millis(args.down_after),
        interval: Duration::from_millis(args.interval),
        login: args.password.clone().map(|password| (args.user.clone(), password)),
        announce: args.announce.unwrap_or(args.bind),
    };
    options.check().map_err(Failure::message)?;
    #[cfg(feature = "log")]
    super::serve::log::start(&args.log)?;
    let listener = TcpListener::bind(args.bind)
        .map_err(|error| Failure::message(format!("listen on {}: {error}", args.bind)))?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    run_sentinel(options, listener, &stop).map_err(Failure::message)?;
    Ok(Answer::Yes)
}

/// Makes SIGTERM and SIGINT end the sentinel, so that another one acts at once.
fn stop_on_signals(stop: &Arc<AtomicBool>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::message(format!("wait for signals: {error}")))?;
    let stop = stop.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            #[cfg(unix)]
            {
                use tokio::signal::unix::{SignalKind, signal};
                let (Ok(mut end), Ok(mut interrupt)) =
                    (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
                else {
                    return;
                };
                tokio::select! {
                    _ = end.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            #[cfg(not(unix))]
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    Ok(())
}
