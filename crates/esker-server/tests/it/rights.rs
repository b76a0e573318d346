//! Random rules for users: they allow the same here and in Redis.

use fastrand::Rng;

use crate::differential::Redis;
use crate::generator::{command, templates};
use crate::harness::TestServer;
use crate::wire::Wire;

/// Commands that the generator does not have, with subcommands that have rights of their own.
const OTHERS: &[&str] = &[
    "ACL WHOAMI|LIST|USERS|CAT|GENPASS|LOG|SAVE|LOAD|HELP",
    "ACL SETUSER|GETUSER|DELUSER x",
    "CLIENT LIST|ID|INFO|GETNAME|HELP|UNPAUSE",
    "CLIENT KILL|SETNAME|PAUSE|UNBLOCK|REPLY x",
    "CONFIG GET|RESETSTAT|REWRITE|HELP x",
    "LATENCY DOCTOR|LATEST|RESET|HELP",
    "SLOWLOG GET|LEN|RESET|HELP",
    "SCRIPT FLUSH|EXISTS|LOAD|KILL x",
    "MEMORY DOCTOR|STATS|PURGE|HELP",
    "OBJECT ENCODING|FREQ k",
    "COMMAND COUNT|LIST|DOCS",
    "PUBSUB CHANNELS|NUMPAT",
    "XINFO STREAM|GROUPS kx",
    "INFO",
    "ROLE",
    "LASTSAVE",
    "SAVE",
    "BGSAVE",
    "SHUTDOWN",
    "MONITOR",
    "KEYS *",
    "RANDOMKEY",
    "SCAN 0",
    "DBSIZE",
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB 0 1",
    "REPLICAOF no one",
    "DEBUG SLEEP 0",
    "SELECT 1",
    "MOVE k 1",
    "PUBLISH news|other x",
    "SUBSCRIBE news|other",
    "SORT kl",
    "SORT kl STORE kl",
    "SORT_RO kl",
    "RESTORE k 0 x",
    "DUMP k",
    "WAIT 0 0",
    "AUTH x",
    "PING",
    "ECHO x",
    "HELLO",
    "TIME",
    "LOLWUT",
    "PFADD ks f",
    "PFCOUNT ks ks",
    "PFMERGE ks ks",
    "XREADGROUP GROUP streams g STREAMS kx >",
    "XREAD COUNT 1 STREAMS kx 0",
    "XAUTOCLAIM kx g c 0 -",
    "XADD kx * f v",
    "EVAL x 1 k",
    "EVAL_RO x 1 k",
    "EVALSHA x 0",
    "LMPOP 2 kl kl LEFT",
    "BZMPOP 0 2 kz kz MIN",
    "BLMOVE kl kl LEFT RIGHT 0",
    "MEMORY USAGE k",
    "BITFIELD_RO ks GET u4 0",
];

const RULES: &[&str] = &[
    "+@all",
    "-@all",
    "+@read",
    "-@write",
    "-@dangerous",
    "+@dangerous",
    "-@admin",
    "+@fast",
    "-@slow",
    "-@keyspace",
    "+@string",
    "-@stream",
    "+@connection",
    "-@connection",
    "-@scripting",
    "+@transaction",
    "-@blocking",
    "+@pubsub",
    "-@pubsub",
    "+acl|whoami",
    "-client|list",
    "+config|get",
    "-config|set",
    "+get",
    "-set",
    "+xreadgroup",
    "-sort",
    "+role",
    "%R~kx*",
    "%W~kl*",
    "~ks*",
    "%RW~kz*",
    "%R~*",
    "~*",
    "allkeys",
    "resetkeys",
    "&news",
    "allchannels",
    "resetchannels",
];

#[test]
fn random_rules_allow_what_they_allow_in_redis() {
    let Some(redis) = Redis::start() else {
        eprintln!("no redis-server here: rights are compared with nothing");
        return;
    };
    let server = TestServer::start();
    let (mut ours, mut theirs) = (server.wire(), Wire::connect(redis.port));
    let templates: Vec<_> =
        templates().into_iter().chain(OTHERS.iter().copied().cycle().take(4 * OTHERS.len())).collect();
    let mut random = Rng::with_seed(5);
    let seeds: u64 = std::env::var("ESKER_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut differences = std::collections::BTreeSet::new();
    for _ in 0..5 * seeds {
        let mut rules = vec!["ACL", "SETUSER", "u", "reset"];
        rules.extend((0..random.usize(1..7)).map(|_| RULES[random.usize(0..RULES.len())]));
        let replies = [&mut ours, &mut theirs].map(|wire| wire.call(&rules));
        assert_eq!(replies[0], replies[1], "{rules:?}");
        for _ in 0..100 {
            let words = command(&mut random, &templates);
            let dry = [vec!["ACL".to_owned(), "DRYRUN".to_owned(), "u".to_owned()], words].concat();
            let [our, their] = [&mut ours, &mut theirs].map(|wire| format!("{:?}", wire.call(&dry)));
            if our != their {
                differences.insert(format!("{} {:?}: {our} | {their}", dry[3], dry.get(4)));
                if differences.len() > 60 {
                    break;
                }
                eprintln!("{} {dry:?}\n   ours {our}\n   theirs {their}", rules[3..].join(" "));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}
