//! Random commands for servers that have to agree.

use fastrand::Rng;

/// Templates: `k` a key, `K` one of the same type for all, `ks` and the like one of that type mostly, `f` a field or member, `n` a small number, `i` an index, `v` a value, `s` a score, `b` a bound by
/// score, `l` a bound by member, `o` a longitude, `a` a latitude, `r` a radius; `|` parts words to choose from; `f*` and the like stand for one to three.
const TEMPLATES: &[&str] = &[
    // Strings.
    "SET ks v",
    "SET ks v NX|XX|GET|KEEPTTL",
    "SET ks n EX 1000",
    "SETNX ks v",
    "GET ks",
    "GETSET ks v",
    "GETDEL ks",
    "GETEX ks PERSIST",
    "APPEND ks v",
    "STRLEN ks",
    "INCR ks",
    "DECR ks",
    "INCRBY ks n",
    "DECRBY ks n",
    "INCRBYFLOAT ks 0.5",
    "GETRANGE ks i i",
    "SETRANGE ks n v",
    "MGET ks ks kh",
    "MSET ks v ks v",
    "MSETNX ks v ks v",
    "LCS ks ks",
    "LCS ks ks LEN",
    "SETBIT ks n 0|1",
    "GETBIT ks n",
    "BITCOUNT ks",
    "BITCOUNT ks i i",
    "BITPOS ks 0|1",
    "BITPOS ks 0|1 i i",
    "BITOP AND|OR|XOR ks ks ks",
    "BITOP NOT ks ks",
    "BITFIELD ks GET u4 n",
    "BITFIELD ks SET i8 n n",
    "BITFIELD ks OVERFLOW SAT|WRAP|FAIL INCRBY u3 n n",
    // Keys.
    "DEL k",
    "DEL k k",
    "UNLINK k",
    "EXISTS k k",
    "TYPE k",
    "TTL k",
    "EXPIRE k 1000",
    "EXPIRE k 1000 NX|XX|GT|LT",
    "EXPIRE k -1",
    "PERSIST k",
    "EXPIRETIME kh",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "KEYS *",
    "KEYS k?0",
    "DBSIZE",
    "TOUCH k k",
    "OBJECT REFCOUNT none",
    // Hashes.
    "HSET kh f v",
    "HSET kh f v f v",
    "HSETNX kh f v",
    "HMSET kh f v",
    "HGET kh f",
    "HMGET kh f f",
    "HGETALL kh",
    "HKEYS kh",
    "HVALS kh",
    "HLEN kh",
    "HDEL kh f*",
    "HEXISTS kh f",
    "HINCRBY kh f n",
    "HINCRBYFLOAT kh f 1.5",
    "HSTRLEN kh f",
    "HSCAN kh 0 COUNT 1000",
    // Sets.
    "SADD kt f*",
    "SREM kt f*",
    "SMEMBERS kt",
    "SCARD kt",
    "SISMEMBER kt f",
    "SMISMEMBER kt f f",
    "SMOVE kt kt f",
    "SINTER kt kt",
    "SUNION kt kt",
    "SDIFF kt kt",
    "SINTERSTORE kt kt kt",
    "SUNIONSTORE kt kt kt",
    "SDIFFSTORE kt kt kt",
    "SINTERCARD 2 kt kt",
    "SINTERCARD 2 kt kt LIMIT n",
    "SSCAN kt 0 COUNT 1000",
    // Sorted sets.
    "ZADD kz s f",
    "ZADD kz s f s f",
    "ZADD kz NX|XX|GT|LT|CH s f",
    "ZADD kz XX GT CH s f",
    "ZADD kz INCR s f",
    "ZINCRBY kz s f",
    "ZREM kz f*",
    "ZSCORE kz f",
    "ZMSCORE kz f f",
    "ZCARD kz",
    "ZRANK kz f",
    "ZREVRANK kz f",
    "ZRANGE kz i i",
    "ZRANGE kz i i WITHSCORES",
    "ZRANGE kz i i REV",
    "ZREVRANGE kz i i",
    "ZRANGEBYSCORE kz b b",
    "ZRANGEBYSCORE kz b b WITHSCORES LIMIT n n",
    "ZREVRANGEBYSCORE kz b b",
    "ZRANGE kz b b BYSCORE",
    "ZRANGE kz b b BYSCORE REV LIMIT n i",
    "ZCOUNT kz b b",
    "ZREMRANGEBYSCORE kz b b",
    "ZREMRANGEBYRANK kz i i",
    "ZPOPMIN kz",
    "ZPOPMAX kz n",
    "ZUNIONSTORE kz 2 kz kz",
    "ZINTERSTORE kz 2 kz kt WEIGHTS 2 3",
    "ZUNION 2 kz kz WITHSCORES",
    "ZINTER 2 kz kz",
    "ZDIFF 2 kz kz WITHSCORES",
    "ZUNION 2 kz kz AGGREGATE MIN|MAX|SUM WITHSCORES",
    "ZDIFFSTORE kz 2 kz kz",
    "ZINTERCARD 2 kz kz",
    "ZRANGESTORE kz kz i i",
    "ZMPOP 2 kz kz MIN|MAX",
    "ZSCAN kz 0 COUNT 1000",
    "ZADD lex 0 f 0 f",
    "ZRANGEBYLEX lex l l",
    "ZREVRANGEBYLEX lex l l",
    "ZLEXCOUNT lex l l",
    "ZREMRANGEBYLEX lex l l",
    // Places.
    "GEOADD geo o a f",
    "GEOADD geo NX|XX|CH o a f o a f",
    "GEOPOS geo f f",
    "GEODIST geo f f",
    "GEODIST geo f f km|ft|mi",
    "GEOHASH geo f f",
    "GEOSEARCH geo FROMLONLAT o a BYRADIUS r km ASC|DESC WITHDIST WITHCOORD WITHHASH",
    "GEOSEARCH geo FROMLONLAT o a BYBOX r r mi ASC WITHDIST",
    "GEOSEARCH geo FROMMEMBER f BYRADIUS r km DESC COUNT 2",
    "GEORADIUS geo o a r km WITHDIST COUNT 3",
    "GEORADIUSBYMEMBER geo f r km ASC",
    "GEORADIUS geo o a r km STORE kz0",
    "GEOSEARCHSTORE kz1 geo FROMLONLAT o a BYBOX r r km",
    // Lists.
    "LPUSH kl f*",
    "RPUSH kl f*",
    "LPUSHX kl f",
    "RPUSHX kl f",
    "LPOP kl",
    "RPOP kl",
    "LPOP kl n",
    "RPOP kl n",
    "LLEN kl",
    "LINDEX kl i",
    "LRANGE kl i i",
    "LSET kl i f",
    "LTRIM kl i i",
    "LREM kl i f",
    "LINSERT kl BEFORE|AFTER f f",
    "LPOS kl f",
    "LPOS kl f RANK -1",
    "LPOS kl f COUNT 0",
    "LMOVE kl kl LEFT|RIGHT LEFT|RIGHT",
    "RPOPLPUSH kl kl",
    "LMPOP 2 kl kl LEFT|RIGHT COUNT 2",
    "BLPOP kl kl 0.001",
    "BRPOP kl 0.001",
    // Streams.
    "XADD kx d f v",
    "XADD kx d f v f v",
    "XADD kx MAXLEN n d f v",
    "XADD kx NOMKSTREAM d f v",
    "XLEN kx",
    "XRANGE kx - +",
    "XRANGE kx d d",
    "XRANGE kx d + COUNT 2",
    "XREVRANGE kx + -",
    "XREVRANGE kx + d COUNT 3",
    "XDEL kx d",
    "XTRIM kx MAXLEN n",
    "XTRIM kx MAXLEN ~ 0|5",
    "XTRIM kx MINID d",
    "XREAD COUNT 2 STREAMS kx d",
    "XREAD STREAMS kx kx d 0",
    "XREAD BLOCK 1 STREAMS kx $",
    "XGROUP CREATE kx g 0",
    "XGROUP CREATE kx g d MKSTREAM",
    "XGROUP DESTROY kx g",
    "XGROUP SETID kx g d",
    "XGROUP CREATECONSUMER kx g f",
    "XGROUP DELCONSUMER kx g c",
    "XREADGROUP GROUP g c COUNT 2 STREAMS kx >",
    "XREADGROUP GROUP g c STREAMS kx 0",
    "XREADGROUP GROUP g c NOACK STREAMS kx >",
    "XACK kx g d d",
    "XPENDING kx g",
    "XCLAIM kx g c 0 d d JUSTID",
    "XCLAIM kx g c 0 d FORCE JUSTID",
    "XAUTOCLAIM kx g c 0 - COUNT 3",
    "XSETID kx d",
    // Transactions.
    "WATCH k",
    "UNWATCH",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    // What is wrong.
    "GET",
    "SET ks",
    "HSET kh f",
    "ZADD kz x f",
    "INCRBY ks x",
    "LSET kl x f",
    "EXPIRE k x",
    "SET ks v EX 0",
    "NOSUCH a b",
    "ZRANGE kz x 1",
    "GEOADD geo 181 0 f",
    "GEOSEARCH geo FROMMEMBER f BYRADIUS 1 m FROMLONLAT 1 1",
    "GEORADIUS geo 0 0 -1 km",
    "GEODIST geo f f x",
];

/// Types of keys.
const KINDS: [char; 6] = ['s', 'h', 't', 'z', 'l', 'x'];

/// The commands that a test is about.
pub fn templates() -> Vec<&'static str> {
    TEMPLATES.to_vec()
}

fn key(random: &mut Rng, kind: char) -> String {
    // Now and then of another type.
    let kind = if random.u8(0..40) == 0 { KINDS[random.usize(0..KINDS.len())] } else { kind };
    format!("k{kind}{}", random.u8(0..3))
}

fn word(random: &mut Rng, template: &str, same: char) -> Vec<String> {
    let member = |random: &mut Rng| match random.u8(0..30) {
        0 => "a longer member, which is to leave no room for others in a small collection"
            .repeat(random.usize(1..4)),
        _ => format!("f{}", random.u8(0..12)),
    };
    let one = match template {
        "K" => key(random, same),
        "k" => {
            let kind = KINDS[random.usize(0..KINDS.len())];
            key(random, kind)
        }
        _ if template.len() == 2 && template.starts_with('k') => {
            key(random, template.chars().nth(1).unwrap_or('s'))
        }
        "f" => member(random),
        "f*" => return (0..random.usize(1..4)).map(|_| member(random)).collect(),
        "n" => random.u8(0..20).to_string(),
        "i" => random.i8(-6..7).to_string(),
        "v" => match random.u8(0..6) {
            0 => random.i32(-100..100).to_string(),
            1 => "x".repeat(random.usize(0..200)),
            _ => format!("value{}", random.u8(0..9)),
        },
        "o" => format!("{:.6}", random.f64() * 360.0 - 180.0),
        "a" => format!("{:.6}", random.f64() * 120.0 - 60.0),
        "r" => random.u16(100..2000).to_string(),
        "d" => format!("{}-{}", random.u8(1..40), random.u8(0..3)),
        "g" => format!("group{}", random.u8(0..2)),
        "c" => format!("consumer{}", random.u8(0..2)),
        "s" => ["0", "1", "2", "-1", "2.5", "1e3", "inf", "-inf", "3"][random.usize(0..9)].to_owned(),
        "b" => ["-inf", "+inf", "0", "1", "(1", "2", "(2.5", "(-1", "3"][random.usize(0..9)].to_owned(),
        "l" => match random.u8(0..5) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2 => format!("(f{}", random.u8(0..12)),
            _ => format!("[f{}", random.u8(0..12)),
        },
        _ if template.contains('|') => {
            let choices: Vec<_> = template.split('|').collect();
            choices[random.usize(0..choices.len())].to_owned()
        }
        _ => template.to_owned(),
    };
    vec![one]
}

/// A command.
pub fn command(random: &mut Rng, templates: &[&str]) -> Vec<String> {
    let template = templates[random.usize(0..templates.len())];
    let same = KINDS[random.usize(0..KINDS.len())];
    template.split(' ').flat_map(|part| word(random, part, same)).collect()
}
