"""redis-py: a shared lock, pipelines, WATCH, scripts, streams and messages, in both protocols."""
import sys
import threading

from redis import Redis
from redis.exceptions import LockError

for protocol in (2, 3):
    r = Redis(port=int(sys.argv[1]), db=10, protocol=protocol, decode_responses=True)
    r.flushdb()
    lines = []

    def work():
        for _ in range(20):
            with r.lock("lock", timeout=10, sleep=0.002):
                n = int(r.get("n") or 0)
                r.set("n", n + 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert r.get("n") == "80"
    held = r.lock("lock", timeout=5)
    assert held.acquire() and held.extend(10) and held.reacquire() and held.owned()
    r.delete("lock")
    try:
        held.release()
        raise SystemExit("a lock that is gone was released")
    except LockError:
        pass
    assert r.transaction(lambda p: (p.multi(), p.incr("n"), p.hset("h", mapping={"a": 1})), "n")[0] == 81
    assert r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")(["n"], [4]) == 85
    ids = [r.xadd("s", {"n": n}) for n in range(3)]
    r.xgroup_create("s", "g", 0)
    assert r.xreadgroup("g", "me", {"s": ">"}) and r.xack("s", "g", *ids) == 3
    messages = r.pubsub(ignore_subscribe_messages=True)
    messages.psubscribe(**{"news.*": lambda m: lines.append(m["data"])})
    thread = messages.run_in_thread(sleep_time=0.01)
    while r.publish("news.a", "hello") == 0 or not lines:
        pass
    thread.stop(), thread.join()
    assert lines[0] == "hello"
