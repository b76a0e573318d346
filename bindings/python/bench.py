"""Speed of Esker beside lmdb, rocksdict, sqlite3 and diskcache, in one process.

    pip install lmdb rocksdict diskcache
    python bench.py [--items 100000] [--runs 5]

The stores take turns in each row, another one begins each run, and the table has the medians. Commits reach
the operating system and do not wait for the disk, except in the row "synced". Each put, get and range is a
commit or a reading of its own. Times are microseconds for each item. All items are in the database from the
first row on. A store that lacks an operation has no figure.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import esker
import esker.cache

VALUE_BYTES = 100
SYNCED = 200


class Esker:
    def __init__(self, path: str) -> None:
        self.db = esker.open(path, durability="buffered")
        self.map = self.db["bench"]
        self.put, self.get = self.map.__setitem__, self.map.__getitem__
        self.synced = self.map.using(durability="sync").put

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.map.update(pairs)

    def scan(self) -> int:
        return sum(len(value) for _, value in self.map.items())

    def ranges(self, starts: list[bytes]) -> int:
        return sum(len(list(self.map.items(start, limit=10))) for start in starts)

    def close(self) -> None:
        self.db.close()


class Lmdb:
    def __init__(self, path: str) -> None:
        import lmdb

        self.env = lmdb.open(path, map_size=1 << 32, sync=False, writemap=False)
        self.synced_env = None

    def put(self, key: bytes, value: bytes) -> None:
        with self.env.begin(write=True) as t:
            t.put(key, value)

    def synced(self, key: bytes, value: bytes) -> None:
        self.put(key, value)
        self.env.sync(True)

    def get(self, key: bytes) -> bytes:
        with self.env.begin() as t:
            return t.get(key)  # type: ignore[no-any-return]

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.env.begin(write=True) as t, t.cursor() as cursor:
            cursor.putmulti(pairs)

    def scan(self) -> int:
        with self.env.begin() as t, t.cursor() as cursor:
            return sum(len(value) for _, value in cursor)

    def ranges(self, starts: list[bytes]) -> int:
        count = 0
        for start in starts:
            with self.env.begin() as t, t.cursor() as cursor:
                cursor.set_range(start)
                count += sum(1 for _ in zip(range(10), cursor, strict=False))
        return count

    def close(self) -> None:
        self.env.close()


class Rocksdict:
    def __init__(self, path: str) -> None:
        import rocksdict

        self.rocksdict = rocksdict
        self.db = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
        self.put, self.get = self.db.__setitem__, self.db.__getitem__
        self.sync_options = rocksdict.WriteOptions()
        self.sync_options.sync = True

    def synced(self, key: bytes, value: bytes) -> None:
        self.db.put(key, value, self.sync_options)

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        batch = self.rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.db.write(batch)

    def scan(self) -> int:
        return sum(len(value) for _, value in self.db.items())

    def ranges(self, starts: list[bytes]) -> int:
        count = 0
        for start in starts:
            count += sum(1 for _ in zip(range(10), self.db.items(from_key=start), strict=False))
        return count

    def close(self) -> None:
        self.db.close()


class Sqlite:
    def __init__(self, path: str) -> None:
        os.mkdir(path)
        self.db = sqlite3.connect(os.path.join(path, "db"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("CREATE TABLE bench (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def put(self, key: bytes, value: bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO bench VALUES (?, ?)", (key, value))

    def synced(self, key: bytes, value: bytes) -> None:
        self.db.execute("PRAGMA synchronous=FULL")
        self.put(key, value)

    def get(self, key: bytes) -> bytes:
        found = self.db.execute("SELECT value FROM bench WHERE key = ?", (key,)).fetchone()
        return found[0]  # type: ignore[no-any-return]

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO bench VALUES (?, ?)", pairs)
        self.db.execute("COMMIT")

    def scan(self) -> int:
        return sum(len(value) for _, value in self.db.execute("SELECT key, value FROM bench ORDER BY key"))

    def ranges(self, starts: list[bytes]) -> int:
        query = "SELECT key, value FROM bench WHERE key >= ? ORDER BY key LIMIT 10"
        return sum(len(self.db.execute(query, (start,)).fetchall()) for start in starts)

    def close(self) -> None:
        self.db.close()


class Diskcache:
    def __init__(self, path: str) -> None:
        import diskcache

        self.cache = diskcache.Cache(path, eviction_policy="none")
        self.put, self.get = self.cache.__setitem__, self.cache.__getitem__
        self.is_synced = False

    def synced(self, key: bytes, value: bytes) -> None:
        if not self.is_synced:
            self.cache.reset("sqlite_synchronous", 2)
            self.is_synced = True
        self.put(key, value)

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.cache.transact():
            for key, value in pairs:
                self.put(key, value)

    def scan(self) -> int:
        return sum(len(self.get(key)) for key in self.cache)

    def close(self) -> None:
        self.cache.close()


class EskerCache:
    def __init__(self, path: str) -> None:
        self.cache = esker.cache.Cache(path, eviction_policy="none")
        self.put, self.get = self.cache.__setitem__, self.cache.__getitem__

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.cache.transact():
            for key, value in pairs:
                self.put(key, value)

    def scan(self) -> int:
        return sum(len(self.get(key)) for key in self.cache)

    def close(self) -> None:
        self.cache.close()


STORES: dict[str, Callable[[str], Any]] = {
    "esker": Esker,
    "lmdb": Lmdb,
    "rocksdict": Rocksdict,
    "sqlite3": Sqlite,
    "diskcache": Diskcache,
    "esker.cache": EskerCache,
}


def steps(store: Any, items: int, seed: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """The operations of a run: name, number of items, call."""
    rng = random.Random(seed)
    pairs = [(rng.randbytes(12), rng.randbytes(VALUE_BYTES)) for _ in range(items)]
    keys = [key for key, _ in pairs]
    singles = pairs[: items // 10]
    lookups = [rng.choice(keys) for _ in range(items // 2)]

    def each(call: Callable[..., object], of: list[Any]) -> Callable[[], object]:
        return lambda: [call(*args) for args in of] and None

    chunks = [(pairs[n : n + 1000],) for n in range(0, items, 1000)]
    yield "batches of 1,000", items, each(store.batch, chunks)
    yield "put", len(singles), each(store.put, singles)
    yield "get", len(lookups), each(store.get, [(key,) for key in lookups])
    yield "scan", items, store.scan
    if hasattr(store, "ranges"):
        starts = lookups[: items // 20]
        yield "range of 10", len(starts), lambda: store.ranges(starts)
    mixed = [(store.get, (key,)) if n % 10 else (store.put, pairs[n]) for n, key in enumerate(lookups)]
    yield "9 gets, 1 put", len(mixed), lambda: [call(*args) for call, args in mixed] and None
    if hasattr(store, "synced"):
        yield "put, synced", SYNCED, each(store.synced, pairs[:SYNCED])


Times = dict[str, dict[str, list[float]]]
Parts = dict[str, list[tuple[str, int, Callable[[], object]]]]


def measure(step: str, parts: Parts, run: int, times: Times) -> None:
    """Measures a step of all stores, one after the other. Another store begins each run."""
    names = list(parts)
    first = run % len(names)
    for name in names[first:] + names[:first]:
        for found, count, call in parts[name]:
            if found == step:
                start = time.perf_counter()
                call()
                took = (time.perf_counter() - start) / count
                times.setdefault(step, {}).setdefault(name, []).append(took * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stores", nargs="*", default=list(STORES))
    given = parser.parse_args()
    times: Times = {}
    for run in range(given.runs):
        directory = tempfile.mkdtemp(prefix="bench-")
        stores = {name: STORES[name](os.path.join(directory, name)) for name in given.stores}
        parts = {name: list(steps(store, given.items, run)) for name, store in stores.items()}
        for step in max(parts.values(), key=len):
            measure(step[0], parts, run, times)
        for store in stores.values():
            store.close()
        shutil.rmtree(directory)
    print("| us for each item | " + " | ".join(given.stores) + " |")
    print("|---|" + "---|" * len(given.stores))
    for step, of in times.items():
        cells = [f"{statistics.median(of[name]):.2f}" if name in of else "" for name in given.stores]
        print(f"| {step} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
