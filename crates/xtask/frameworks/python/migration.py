"""Moves a data set from a real Redis to Esker and back, under writes, and compares every key.

Needs the program `redis-server`. Without it the script does nothing, unless ESKER_REQUIRE has "redis".
"""
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from redis import Redis
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError

program = shutil.which("redis-server")
if program is None:
    print("redis-server is not installed: nothing is tested")
    sys.exit("redis" in os.environ.get("ESKER_REQUIRE", "").split(","))

ESKER = os.environ["ESKER"]
PORT = sys.argv[1]
SEED = int(os.environ.get("ESKER_SEED", random.randrange(1 << 30)))
print("ESKER_SEED =", SEED)
work = tempfile.mkdtemp()
started = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis_server(*options):
    port = free_port()
    directory = tempfile.mkdtemp(dir=work)
    process = subprocess.Popen(
        [program, "--port", str(port), "--save", "", "--dir", directory, *options], stdout=subprocess.DEVNULL)
    started.append(process)
    r = Redis(port=port)
    while True:
        try:
            r.ping()
            return port, directory
        except AuthenticationError:
            return port, directory
        except ConnectionError:
            time.sleep(0.02)


def esker(*words, background=False):
    command = [ESKER, *words]
    if background:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done)
    return done.stdout


def pairs(reply):
    return dict(zip(reply[::2], reply[1::2]))


def state(r, key):
    """All there is to see of a key."""
    kind = r.execute_command("TYPE", key)
    if kind == b"none":
        return None
    reads = {
        b"string": ["GET", key], b"list": ["LRANGE", key, 0, -1], b"set": ["SMEMBERS", key],
        b"zset": ["ZRANGE", key, 0, -1, "WITHSCORES"], b"hash": ["HGETALL", key], b"stream": ["XRANGE", key, "-", "+"],
    }
    value = r.execute_command(*reads[kind])
    if kind == b"set":
        value = sorted(value)
    elif kind == b"hash":
        value = sorted(pairs(value).items())
        try:
            names = [name for name, _ in value]
            value.append(r.execute_command("HPEXPIRETIME", key, "FIELDS", len(names), *names))
        except ResponseError:
            value.append([-1] * len(names))
    elif kind == b"zset":
        value = [(m, float(s)) for m, s in zip(value[::2], value[1::2])]
    elif kind == b"stream":
        info = pairs(r.execute_command("XINFO", "STREAM", key))
        groups = []
        for group in r.execute_command("XINFO", "GROUPS", key):
            group = pairs(group)
            name = group[b"name"]
            pending = []
            for consumer in r.execute_command("XINFO", "CONSUMERS", key, name):
                consumer = pairs(consumer)[b"name"]
                waiting = r.execute_command("XPENDING", key, name, "-", "+", 1000, consumer)
                pending.append((consumer, [(w[0], w[1], w[3]) for w in waiting]))
            # A replica of Redis does not learn how many entries a group has read.
            read = None if key.startswith(b"w") else group[b"entries-read"]
            groups.append((name, group[b"last-delivered-id"], read, sorted(pending)))
        value = (value, info[b"last-generated-id"], info[b"max-deleted-entry-id"], info[b"entries-added"], sorted(groups))
    return kind, value, r.execute_command("PEXPIRETIME", key)


def raw(port, db):
    r = Redis(port=port, db=db, protocol=2)
    r.response_callbacks.clear()
    return r


def compare(a, b, databases=(0, 1, 5)):
    total = 0
    for db in databases:
        one, two = raw(a, db), raw(b, db)
        keys = one.execute_command("KEYS", "*")
        assert sorted(keys) == sorted(two.execute_command("KEYS", "*")), (
            db, set(keys) ^ set(two.execute_command("KEYS", "*")))
        for key in keys:
            left, right = state(one, key), state(two, key)
            assert left == right, (db, key, left, right)
        total += len(keys)
    return total


LIBRARY = "#!lua name=lib\nredis.register_function('twice', function(k, a) return a[1] * 2 end)"


def has_field_deadlines(r):
    """Since Redis 7.4."""
    major, minor = r.info()["redis_version"].split(".")[:2]
    return (int(major), int(minor)) >= (7, 4)


def fill(r):
    """Every type, in every encoding that Redis 7.0 writes."""
    later = int(time.time() * 1000) + 3_600_000
    r.set("text", "hello"), r.set("int8", 5), r.set("int16", -300), r.set("int32", 70_000), r.set("int64", 1 << 40)
    r.set("long", "abcd" * 5000), r.set(b"\x00\xff\r\n", bytes(range(256))), r.set("empty", "")
    r.set("ttl", "x", pxat=later), r.set("random", random.randbytes(3000))
    r.rpush("list", *range(-50, 50), "x" * 100, "", 1 << 50), r.rpush("biglist", *["e%d" % n * 30 for n in range(5000)])
    r.rpush("hugeelement", "y" * 100_000, "z")
    r.sadd("intset", 1, -5, 70_000, 1 << 40), r.sadd("set", "a", "b", 3), r.sadd("bigset", *range(0, 9000, 3), "t")
    r.zadd("zset", {"a": 1.5, "b": -2, "c": float("inf"), "d": float("-inf"), "e": 1e-300, "f": 1e300, "g": 0.1})
    r.zadd("bigzset", {"m%d" % n: n / 7 for n in range(3000)})
    r.hset("hash", mapping={"f": "v", "n": 17, "": "empty"})
    r.hset("bighash", mapping={"f%d" % n: "v" * (n % 90) for n in range(2000)})
    r.pexpireat("bighash", later + 1)
    if has_field_deadlines(r):
        r.hset("fields", mapping={"a": 1, "b": 2, "c": 3}), r.hset("manyfields", mapping={"f%d" % n: n for n in range(900)})
        r.execute_command("HPEXPIREAT", "fields", later, "FIELDS", 1, "a")
        r.execute_command("HPEXPIREAT", "fields", later + 50_000, "FIELDS", 1, "c")
        r.execute_command("HPEXPIREAT", "manyfields", later + 7, "FIELDS", 2, "f1", "f2")
    r.pfadd("hll", *range(100)), r.pfadd("bighll", *range(20_000)), r.pfcount("hll")
    r.setbit("bits", 77_777, 1), r.geoadd("geo", (13.4, 52.5, "Berlin"))
    for n in range(250):
        r.xadd("stream", {"n": n, "text": "x" * n} if n % 3 else {"other": n}, id="%d-%d" % (1000 + n, n))
    r.xdel("stream", "1003-3", "1200-200"), r.xgroup_create("stream", "g", 0), r.xgroup_create("stream", "h", "$")
    r.xreadgroup("g", "ann", {"stream": ">"}, count=20), r.xreadgroup("g", "bob", {"stream": ">"}, count=5)
    r.xreadgroup("g", "bob", {"stream": 0}), r.xack("stream", "g", "1001-1"), r.xdel("stream", "1005-5")
    r.xgroup_createconsumer("stream", "h", "idle")
    r.xgroup_create("emptystream", "only", "$", mkstream=True)
    r.xadd("gone", {"a": 1}, id="9-9"), r.xdel("gone", "9-9")
    for db in (1, 5):
        with Redis(port=r.connection_pool.connection_kwargs["port"], db=db) as other:
            other.set("where", db), other.rpush("l", db)
    r.execute_command("FUNCTION", "LOAD", LIBRARY)


def write(port, stop, seed, keys):
    """Random writes until the event `stop`."""
    rng = random.Random(seed)
    r = Redis(port=port)
    script = r.register_script("redis.call('incr', KEYS[1]); redis.call('rpush', KEYS[2], redis.call('time')[1]); return 1")
    restorable, has_fields = r.dump("zset"), has_field_deadlines(r)
    while not stop.is_set():
        key = "w%d:%d" % (seed, rng.randrange(keys))
        try:
            op = rng.randrange(26 + has_fields)
            if op == 0: r.set(key, rng.random())
            elif op == 1: r.incr(key)
            elif op == 2: r.append(key, "tail")
            elif op == 3: r.rpush(key, *range(rng.randrange(1, 9)))
            elif op == 4: r.lpop(key)
            elif op == 5: r.sadd(key, rng.randrange(30))
            elif op == 6: r.spop(key)
            elif op == 7: r.zadd(key, {rng.randrange(9): rng.random()})
            elif op == 8: r.zincrby(key, rng.random(), rng.randrange(9))
            elif op == 9: r.hset(key, rng.randrange(9), rng.random())
            elif op == 10: r.hincrbyfloat(key, "n", rng.random())
            elif op == 11: r.xadd(key, {"a": rng.random()}, maxlen=rng.randrange(20, 40), approximate=rng.random() < 0.5)
            elif op == 12: r.xgroup_create(key, "g", 0)
            elif op == 13: r.xreadgroup("g", rng.choice("abc"), {key: ">"}, count=rng.randrange(1, 5), noack=rng.random() < 0.2)
            elif op == 14: r.xack(key, "g", *[m[0] for m in r.xrange(key, count=2)])
            elif op == 15: r.xautoclaim(key, "g", rng.choice("abc"), 0, count=2)
            elif op == 16: r.pexpire(key, rng.randrange(1, 400))
            elif op == 17: r.expire(key, 1000 + rng.randrange(9))
            elif op == 18: r.persist(key)
            elif op == 19: r.delete(key)
            elif op == 20: r.rename(key, "w%d:%d" % (seed, rng.randrange(keys)))
            elif op == 21: r.copy(key, "w%d:%d" % (seed, rng.randrange(keys)), destination_db=rng.choice((None, 1)), replace=True)
            elif op == 22: script(keys=[key, "log%d" % seed])
            elif op == 23:
                with r.pipeline(transaction=True) as p:
                    p.incr("n%d" % seed), p.set(key, "in multi"), p.pexpire("n%d" % seed, 100_000)
                    p.execute()
            elif op == 24: r.restore(key, rng.choice((0, 90_000)), restorable, replace=True)
            elif op == 25: r.execute_command("XCLAIM", key, "g", "d", 0, *[m[0] for m in r.xrange(key, count=2)])
            elif op == 26: r.execute_command("HPEXPIRE", key, rng.randrange(1, 900), "FIELDS", 1, rng.randrange(9))
            # A session whose lifetime is prolonged while the import is behind.
            r.set("s%d" % seed, 1, nx=True, px=150), r.pexpire("s%d" % seed, 150)
        except ResponseError as error:
            if not any(s in str(error) for s in ("WRONGTYPE", "no such key", "NOGROUP", "BUSYGROUP", "not an integer",
                                                 "requires the key", "wrong number", "not a float", "not a valid", "are the same")):
                raise


def settled(port, target, process=None):
    """Waits until the target has all that the source has written."""
    Redis(port=port).set("end", time.time())
    wanted = Redis(port=port).get("end")
    for _ in range(3000):
        if Redis(port=target).get("end") == wanted:
            return
        if process is not None and process.poll() is not None:
            raise SystemExit(("the import ended", process.communicate()))
        time.sleep(0.01)
    raise SystemExit("the target does not catch up")


def live(diskless):
    """An import from a source under writes, through a lost connection, and through a lost history."""
    port, _ = redis_server("--enable-debug-command", "yes", "--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0")
    r = Redis(port=port)
    fill(r)
    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(port, stop, SEED + n, 40)) for n in range(3)]
    [w.start() for w in writers]
    time.sleep(0.5)
    process = esker("import", "--redis", "127.0.0.1:%d" % port, "--server", "127.0.0.1:" + PORT, "--replace",
                    background=True)
    time.sleep(2.5)
    # A lost connection goes on where it ended.
    assert r.execute_command("CLIENT", "KILL", "TYPE", "replica") >= 1
    time.sleep(2)
    r.execute_command("DEBUG", "CHANGE-REPL-ID"), r.execute_command("CLIENT", "KILL", "TYPE", "replica")
    time.sleep(2)
    stop.set()
    [w.join() for w in writers]
    # Nothing expires while the two are compared.
    time.sleep(0.6)
    r.dbsize(), [r.get(key) for key in r.keys("*") if r.type(key) == b"string"]
    settled(port, PORT, process)
    process.send_signal(2)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "stream goes on" in err and "starting again" in err, (process.returncode, out, err)
    count = compare(port, int(PORT))
    print("diskless %s: %d keys alike; %s" % (diskless, count, out.strip()))
    assert Redis(port=int(PORT)).execute_command("FCALL", "twice", 0, 21) == 42
    return port


def snapshots(port):
    r = Redis(port=port)
    for options in ([], ["rdbcompression", "no"], ["rdbchecksum", "no"]):
        if options:
            try:
                r.config_set(*options)
            except ResponseError:
                continue
        r.save()
        file = os.path.join(r.config_get("dir")["dir"], "dump.rdb")
        copy = os.path.join(work, "copy.rdb")
        shutil.copy(file, copy)
        print(esker("import", copy, "--server", "127.0.0.1:" + PORT, "--replace").strip())
        compare(port, int(PORT))
    refused = subprocess.run([ESKER, "import", copy, "--server", "127.0.0.1:" + PORT], capture_output=True, text=True)
    assert refused.returncode == 2 and "--replace" in refused.stderr, refused
    bytes_ = bytearray(open(file, "rb").read())
    open(copy, "wb").write(bytes_[:-20])
    refused = subprocess.run(
        [ESKER, "import", copy, "--server", "127.0.0.1:" + PORT, "--replace"], capture_output=True, text=True)
    assert refused.returncode == 2 and "the input ends" in refused.stderr, refused


def dumps(port):
    """RESTORE takes what DUMP of Redis returns, and the other way, as RIOT and redis-shake send it."""
    Redis(port=int(PORT)).flushall()
    restored(port, int(PORT))
    assert not Redis(port=int(PORT)).execute_command("ES.VERIFY")
    other, _ = redis_server("--databases", "16")
    restored(int(PORT), other)
    libraries = raw(int(PORT), 0).execute_command("FUNCTION", "DUMP")
    assert raw(other, 0).execute_command("FUNCTION", "RESTORE", libraries) == b"OK"
    assert Redis(port=other).execute_command("FCALL", "twice", 0, 21) == 42


def restored(port, to):
    """Copies all keys by DUMP and RESTORE. Damaged payloads are refused."""
    for db in (0, 1, 5):
        source, target = raw(port, db), raw(to, db)
        for key in source.execute_command("KEYS", "*"):
            payload, at = source.execute_command("DUMP", key), source.execute_command("PEXPIRETIME", key)
            assert target.execute_command("RESTORE", key, max(at, 0), payload, "ABSTTL") == b"OK", key
            for n in random.sample(range(len(payload)), min(8, len(payload))):
                damaged = payload[:n] + bytes([payload[n] ^ 1]) + payload[n + 1:]
                try:
                    target.execute_command("RESTORE", key, 0, damaged, "REPLACE")
                    raise AssertionError(("a damaged payload was taken", key, n))
                except ResponseError as error:
                    assert "payload version or checksum" in str(error) or "Bad data" in str(error), error
    print("restored from dumps:", compare(port, to))


def until(port):
    """An import by itself ends when it has caught up, or once the source is paused."""
    address = ["--redis", "127.0.0.1:%d" % port, "--server", "127.0.0.1:" + PORT, "--replace"]
    print(esker("import", *address, "--until-caught-up").strip())
    compare(port, int(PORT))
    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(port, stop, SEED + 7, 40))]
    [w.start() for w in writers]
    process = esker("import", *address, "--until-idle", "1", background=True)
    time.sleep(3)
    assert process.poll() is None, process.communicate()
    Redis(port=port).execute_command("CLIENT", "PAUSE", 4000, "WRITE")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, (out, err)
    compare(port, int(PORT))
    stop.set()
    [w.join() for w in writers]
    print("paused:", out.strip())


def back():
    """Everything goes back to another Redis, with users on it."""
    port, _ = redis_server("--requirepass", "secret", "--databases", "16")
    secret = os.path.join(work, "secret")
    open(secret, "w").write("secret\n")
    process = subprocess.run(
        [ESKER, "export", "--server", "127.0.0.1:" + PORT, "--redis", "127.0.0.1:%d" % port,
         "--redis-password-file", secret], capture_output=True, text=True)
    assert process.returncode == 0, process
    Redis(port=port, password="secret").config_set("requirepass", "")
    print(process.stdout.strip(), compare(port, int(PORT)), "alike")
    assert Redis(port=port).execute_command("FCALL", "twice", 0, 21) == 42


try:
    for diskless in ("yes", "no"):
        last = live(diskless)
    dumps(last)
    snapshots(last)
    until(last)
    back()
finally:
    for process in started:
        process.kill()
    shutil.rmtree(work, ignore_errors=True)
