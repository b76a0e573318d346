"""Caches: what diskcache's own tests do not show."""

import os
import pickle
import random
import subprocess
import sys
import threading
import time
import uuid

import pytest

import esker
from esker.cache import Cache, Deque, FanoutCache, Index, PickleDisk


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache") as opened:
        yield opened
        assert opened.check() == []


VALUES = [
    None, True, 7, 2**200, 1.5, "text", "\ud800", b"\0", [1, [2]], (1, (2,)), {"a": (1,)}, {1: {2}},
    {"!tuple": 1}, {"!odd": b"x"}, frozenset([1]), bytearray(b"1"), {"a": {"!set": [1]}}, [], {}, (),
]  # fmt: skip


def test_values_and_keys_keep_their_types_without_pickle(cache):
    for value in VALUES:
        cache["v"] = value
        found = cache["v"]
        assert found == value and type(found) is type(value)
    keys = [None, True, 1, -5, 2**200, 1.5, "a", b"a", (1, ("a", b"")), "k" * 100_000, uuid.UUID(int=1)]
    for number, key in enumerate(keys):
        cache[key] = number
    assert [cache[key] for key in keys] == list(range(len(keys))) and list(cache)[1:] == keys
    cache[1.0] = "one"
    assert cache[1] == "one" and cache[True] == 1
    for value in (object(), {"a": object()}, lambda: 1):
        with pytest.raises(TypeError, match="PickleDisk"):
            cache["o"] = value
    assert "o" not in cache


class Planted:
    def __reduce__(self):
        return os.mkdir, ("planted",)


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cache("pickled", disk=PickleDisk) as cache:
        cache["bomb"] = Planted()
        cache["fine"] = {1, 2}
        assert cache["fine"] == {1, 2}
    with Cache("pickled") as cache, pytest.raises(ValueError):
        cache["bomb"]
    assert not os.path.exists("planted")
    with pytest.raises(ValueError):
        Cache("other", disk=Cache)


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used", "least-frequently-used"])
def test_a_full_cache_stays_small_and_whole(tmp_path, policy):
    cache = Cache(tmp_path / "cache", size_limit=60_000, eviction_policy=policy)
    rng = random.Random(3)
    for step in range(600):
        key = rng.randrange(80)
        match rng.randrange(6):
            case 0:
                cache.get(key)
            case 1:
                cache.delete(key)
            case 2:
                cache.touch(key, rng.choice([None, 0.01]))
            case 3:
                cache.push(b"x" * 500, expire=rng.choice([None, 0.01]))
            case _:
                cache.set(key, b"x" * rng.randrange(3000), tag=key % 3, expire=rng.choice([None, 0.01]))
        assert cache.volume() <= 60_000 + 4000
        if step == 300:
            cache.reset("eviction_policy", "least-recently-stored")
            cache.close()
    assert cache.check() == [] and len(cache) == len(list(cache)) > 0
    cache.evict(1)
    assert cache.check() == [] and cache.clear() >= 0 and cache.volume() == 0
    cache.close()


def test_threads_and_two_caches_of_a_directory(cache):
    other = Cache(cache.directory)

    def work(mine):
        for _ in range(100):
            mine.incr("n")
            mine.push(1, prefix="q")
            mine.get("n")

    threads = [threading.Thread(target=work, args=(c,)) for c in (cache, other, cache, other)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert cache["n"] == 400 and len(other) == 401
    with pytest.raises(ZeroDivisionError), cache.transact():
        cache["lost"] = 1
        assert cache["lost"] == 1
        with other.transact():
            other["lost too"] = 1
        1 / 0
    assert "lost" not in cache and "lost too" not in cache
    other.close()
    assert cache["n"] == 400


def test_a_thread_closes_its_own_use_only(tmp_path):
    cache = Cache(tmp_path / "cache")
    cache["a"], cache["b"] = 1, 2

    def in_a_thread(work):
        made = []
        thread = threading.Thread(target=lambda: made.append(work()))
        thread.start()
        thread.join(60)
        return made.pop()

    def closes():
        with cache:
            return cache["a"]

    walk = iter(cache)
    assert next(walk) == "a" and in_a_thread(closes) == 1 and list(walk) == ["b"]
    with cache.transact():
        cache["c"] = 3
        assert in_a_thread(closes) == 1
        cache["d"] = 4
    # A thread that ends without closing has closed, too.
    assert in_a_thread(lambda: cache["d"]) == 4
    cache.close()
    with esker.open(tmp_path / "cache") as db:
        assert len(db["cache.entries"]) == 4
    assert cache["c"] == 3
    cache.close()


def test_a_cache_survives_a_kill_and_serves_one_process(tmp_path):
    program = (
        "import os, sys; from esker.cache import Cache, Deque; c = Cache(sys.argv[1])\n"
        "c.set('a', [1], tag='t'); Deque([1, 2], sys.argv[2]); os._exit(9)"
    )
    paths = [str(tmp_path / "cache"), str(tmp_path / "deque")]
    assert subprocess.run([sys.executable, "-c", program, *paths]).returncode == 9
    cache = Cache(paths[0])
    assert cache.get("a", tag=True) == ([1], "t") and Deque(directory=paths[1]) == [1, 2]
    busy = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True)
    assert "Locked" in busy.stderr
    cache.close()


def test_a_forked_child_opens_the_cache_itself(tmp_path):
    cache = Cache(tmp_path / "cache")
    cache["a"] = 1
    child = os.fork()
    if child == 0:
        try:
            cache["a"]
        except (esker.Forked, esker.Locked):
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache["a"] == 1
    cache.close()


def test_fanout_and_collections_below_it(tmp_path):
    with FanoutCache(tmp_path / "fanout", shards=4) as cache:
        cache.cache("a/b")["k"] = 1
        cache.deque("jobs", maxlen=2).extend([1, 2, 3])
        cache.index("names").update(a=1)
        again = pickle.loads(pickle.dumps(cache))
        assert list(again.deque("jobs")) == [2, 3] and again.cache("a/b")["k"] == 1
        assert again.index("names") == {"a": 1} and isinstance(again.index("names"), Index)
        again.close()


def test_expiry_is_exact(cache):
    cache.set("a", 1, expire=0.05)
    value, expires = cache.get("a", expire_time=True)
    assert value == 1 and 0 < expires - time.time() <= 0.05
    time.sleep(0.06)
    assert cache.get("a", "gone") == "gone" and cache.expire() == 1 and len(cache) == 0
