"""`Cache`: a cache on the disk with the interface of `diskcache.Cache`, without pickle."""

from __future__ import annotations

import functools
import io
import json
import math
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal


from .. import tuple as _tuple
from .disk import Disk
from .memoize import ENOVAL, UNKNOWN, memoize
from .record import Record, record_of
from .shared import Spaces, Use

__all__ = ["DEFAULT_SETTINGS", "ENOVAL", "EVICTION_POLICIES", "UNKNOWN", "Cache", "Timeout"]


DEFAULT_SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 2**30,
    "cull_limit": 10,
    "disk_min_file_size": 2**15,
    "disk_pickle_protocol": 5,
}

EVICTION_POLICIES = ("none", "least-recently-stored", "least-recently-used", "least-frequently-used")

Side = Literal["front", "back"]

# What an entry takes beside key and record.
_OVERHEAD = 64
_QUEUE_START = 500_000_000_000_000
_QUEUE_MAX = 999_999_999_999_999


class Timeout(Exception):
    """For programs that expect it of diskcache: here no call times out."""


class _Reader(io.BytesIO):
    """The bytes of a value, as a file."""

    name = "<value of a cache>"


def _row(number: int) -> bytes:
    return number.to_bytes(8, "big")


class Cache:
    """A cache in a directory: a mapping with expiry, tags, eviction, queues and memoization."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        timeout: float = 60,
        disk: type[Disk] = Disk,
        **settings: Any,
    ) -> None:
        if not (isinstance(disk, type) and issubclass(disk, Disk)):
            raise ValueError("disk is a subclass of esker.cache.Disk")
        if directory is None:
            directory = tempfile.mkdtemp(prefix="esker-cache-")
        self._directory = os.path.expandvars(os.path.expanduser(os.fspath(directory)))
        self._timeout, self._disk_class = timeout, disk
        # Commits survive the end of the process, and reach the disk within 100 ms.
        self._durability = settings.pop("durability", "buffered")
        self._prefix = settings.pop("keyspace_prefix", "cache.")
        self._local = threading.local()
        self._settings = {**DEFAULT_SETTINGS, **self._stored_settings()}
        # Options of disks, such as a level of compression, are kept with the settings.
        self._settings.update(settings)
        options = {name[5:]: value for name, value in self._settings.items() if name.startswith("disk_")}
        self._disk = disk(self._directory, **options)
        known = self._stored_settings()
        for name, value in self._settings.items():
            if name not in known or name in settings:
                self.reset(name, value)

    # The database

    def _use(self) -> Use:
        """This thread's use of the database."""
        use: Use | None = getattr(self._local, "use", None)
        if use is None:
            use = self._local.use = Use(self._directory, self._durability, self._prefix)
        return use

    def _now(self) -> Spaces:
        """The keyspaces, as this thread sees them."""
        use = self._use()
        transaction = use.shared.current()
        if transaction is not None:
            return Spaces(transaction, self._prefix)
        return use.spaces

    def _committed(self) -> Spaces:
        """The keyspaces without the writes of a transaction."""
        return self._use().spaces

    @contextmanager
    def _transact(self, retry: bool = False) -> Iterator[Spaces]:
        with self._use().shared.writing() as transaction:
            yield Spaces(transaction, self._prefix)

    @contextmanager
    def transact(self, retry: bool = False) -> Iterator[None]:
        """A block whose writes are committed together; other threads do not write meanwhile."""
        with self._transact(retry):
            yield

    @property
    def directory(self) -> str:
        """The directory."""
        return self._directory

    @property
    def timeout(self) -> float:
        """What was given: no call times out."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """How keys and values are written."""
        return self._disk

    # Settings

    def _stored_settings(self) -> dict[str, Any]:
        found = self._now().settings.get("settings")
        return json.loads(found) if found else {}

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(name)

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Reads a setting from the disk, or sets it. Returns its value."""
        if value is ENOVAL:
            value = self._stored_settings().get(key, DEFAULT_SETTINGS.get(key))
        elif update:
            if key == "eviction_policy" and value not in EVICTION_POLICIES:
                raise ValueError(f"eviction policy {value!r}: it is one of {', '.join(EVICTION_POLICIES)}")
            with self._transact() as spaces:
                stored = self._stored_settings()
                if key == "eviction_policy" and stored.get(key, DEFAULT_SETTINGS[key]) != value:
                    self._rank_all(spaces, value)
                spaces.settings["settings"] = json.dumps({**stored, key: value})
        self._settings[key] = value
        if key.startswith("disk_"):
            setattr(self._disk, key[5:], value)
        return value

    # Entries

    def _rank_of(self, policy: str, record: Record, old: bytes | None) -> tuple[Any, ...] | None:
        if policy == "none":
            return None
        if policy == "least-frequently-used":
            count = _tuple.unpack(old)[0] if old else 0
            return (count if isinstance(count, int) else 0, record.row)
        return (record.stored, record.row)

    def _rank(self, spaces: Spaces, packed: bytes, rank: tuple[Any, ...] | None, row: int) -> None:
        old = spaces.ranks.get(_row(row))
        if old is not None:
            spaces.rank.delete(old)
        if rank is None:
            if old is not None:
                spaces.ranks.delete(_row(row))
            return
        new = _tuple.pack(rank)
        spaces.rank[new] = packed
        spaces.ranks[_row(row)] = new

    def _rank_all(self, spaces: Spaces, policy: str) -> None:
        spaces.rank.clear()
        spaces.ranks.clear()
        for packed, data in spaces.entries.items():
            record = record_of(data)
            self._rank(spaces, packed, self._rank_of(policy, record, None), record.row)

    def _put(self, spaces: Spaces, packed: bytes, record: Record, old: bytes | None) -> None:
        """Writes a record over what is there."""
        size = len(packed) + _OVERHEAD
        if old is not None:
            before = record_of(old)
            size -= len(old) + len(packed) + _OVERHEAD
            if not math.isinf(before.expires):
                spaces.expiry.delete(_tuple.pack((before.expires, before.row)))
        else:
            spaces.order[_row(record.row)] = packed
        data = record.pack()
        spaces.entries[packed] = data
        spaces.settings.add("size", size + len(data))
        if not math.isinf(record.expires):
            spaces.expiry[_tuple.pack((record.expires, record.row))] = packed
        policy = self._settings["eviction_policy"]
        ranked = spaces.ranks.get(_row(record.row)) if old is not None else None
        self._rank(spaces, packed, self._rank_of(policy, record, ranked), record.row)

    def _remove(self, spaces: Spaces, packed: bytes, data: bytes) -> None:
        record = record_of(data)
        spaces.entries.delete(packed)
        spaces.order.delete(_row(record.row))
        if not math.isinf(record.expires):
            spaces.expiry.delete(_tuple.pack((record.expires, record.row)))
        self._rank(spaces, packed, None, record.row)
        spaces.settings.add("size", -len(data) - len(packed) - _OVERHEAD)

    def _touched(self, packed: bytes, record: Record) -> None:
        """Notes a read, if the eviction depends on reads."""
        policy = self._settings["eviction_policy"]
        if policy not in ("least-recently-used", "least-frequently-used"):
            return
        with self._transact() as spaces:
            if packed not in spaces.entries:
                return
            rank: tuple[Any, ...] = (time.time(), record.row)
            if policy == "least-frequently-used":
                old = spaces.ranks.get(_row(record.row))
                rank = ((_tuple.unpack(old)[0] if old else 0) + 1, record.row)
            self._rank(spaces, packed, rank, record.row)

    def _count(self, name: str) -> None:
        if self._settings["statistics"]:
            with self._transact() as spaces:
                spaces.settings.add(name)

    def _live(self, data: bytes | None) -> Record | None:
        if data is None:
            return None
        record = record_of(data)
        return record if record.expires >= time.time() else None

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Sets a key to a value, which expires after `expire` seconds. With `read` the value is a file."""
        packed, kept = self._disk.key(key)
        form, stored = self._disk.store(value.read() if read else value)
        with self._transact(retry) as spaces:
            self._store(spaces, packed, kept, form, stored, expire, tag)
        return True

    def _store(
        self,
        spaces: Spaces,
        packed: bytes,
        kept: bytes,
        form: int,
        value: bytes,
        expire: float | None,
        tag: Any,
    ) -> None:
        now = time.time()
        old = spaces.entries.get(packed)
        row = spaces.settings.add("row") + 1 if old is None else record_of(old).row
        expires = math.inf if expire is None else now + expire
        self._put(spaces, packed, Record(row, now, expires, form, tag, kept, value), old)
        self._cull(spaces, now, self._settings["cull_limit"])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value, retry=True)

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Sets a key that is missing or has expired. Returns whether it did."""
        packed, kept = self._disk.key(key)
        form, stored = self._disk.store(value.read() if read else value)
        with self._transact(retry) as spaces:
            if self._live(spaces.entries.get(packed)) is not None:
                return False
            self._store(spaces, packed, kept, form, stored, expire, tag)
            return True

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Sets the expiry of a key. Returns whether there is such a key."""
        packed, _ = self._disk.key(key)
        with self._transact(retry) as spaces:
            old = spaces.entries.get(packed)
            record = self._live(old)
            if record is None:
                return False
            expires = math.inf if expire is None else time.time() + expire
            self._put(spaces, packed, record._replace(expires=expires), old)
            return True

    def incr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> int:
        """Adds to a number, and returns the sum. A missing key counts as `default`; `None`: `KeyError`."""
        packed, kept = self._disk.key(key)
        with self._transact(retry) as spaces:
            old = spaces.entries.get(packed)
            record = self._live(old)
            if record is None:
                if default is None:
                    raise KeyError(key)
                form, stored = self._disk.store(default + delta)
                self._store(spaces, packed, kept, form, stored, None, None)
                return default + delta
            value: int = self._disk.fetch(record.form, record.value) + delta
            form, stored = self._disk.store(value)
            self._put(spaces, packed, record._replace(form=form, value=stored, stored=time.time()), old)
            return value

    def decr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> int:
        """Subtracts from a number: see `incr`."""
        return self.incr(key, -delta, default, retry)

    def _result(self, record: Record, read: bool, expire_time: bool, tag: bool) -> Any:
        value = self._disk.fetch(record.form, record.value)
        if read and isinstance(value, bytes) and len(value) >= self._disk.min_file_size:
            value = _Reader(value)
        return self._with_extras(value, record.expire_time, record.tag, expire_time, tag)

    @staticmethod
    def _with_extras(value: Any, time_: float | None, tag_: Any, expire_time: bool, tag: bool) -> Any:
        extras = ((time_,) if expire_time else ()) + ((tag_,) if tag else ())
        return (value, *extras) if extras else value

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Returns the value of a key, or `default`; on request with its time of expiry and its tag."""
        packed, _ = self._disk.key(key)
        record = self._live(self._now().entries.get(packed))
        self._count("misses" if record is None else "hits")
        if record is None:
            return self._with_extras(default, None, None, expire_time, tag)
        self._touched(packed, record)
        return self._result(record, read, expire_time, tag)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, ENOVAL, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """Returns the value of a key as a file, if it is large."""
        handle = self.get(key, ENOVAL, read=True, retry=retry)
        if handle is ENOVAL:
            raise KeyError(key)
        return handle

    def __contains__(self, key: Any) -> bool:
        return self._live(self._now().entries.get(self._disk.key(key)[0])) is not None

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Removes a key, and returns its value or `default`."""
        packed, _ = self._disk.key(key)
        with self._transact(retry) as spaces:
            data = spaces.entries.get(packed)
            record = self._live(data)
            if record is None or data is None:
                return self._with_extras(default, None, None, expire_time, tag)
            self._remove(spaces, packed, data)
        return self._result(record, False, expire_time, tag)

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        if not self.delete(key, retry):
            raise KeyError(key)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Removes a key. Returns whether there was one."""
        packed, _ = self._disk.key(key)
        with self._transact(retry) as spaces:
            data = spaces.entries.get(packed)
            if data is None or self._live(data) is None:
                return False
            self._remove(spaces, packed, data)
        return True

    # Queues

    def _queue(self, prefix: str | None) -> tuple[bytes, bytes]:
        if prefix is None:
            return _tuple.pack((0,)), _tuple.pack((_QUEUE_MAX + 1,))
        return _tuple.pack((f"{prefix}-{0:015d}",)), _tuple.pack((f"{prefix}-{_QUEUE_MAX:015d}\0",))

    @staticmethod
    def _end(spaces: Spaces, bounds: tuple[bytes, bytes], side: Side) -> tuple[bytes, bytes] | None:
        if side not in ("front", "back"):
            raise ValueError(f'side {side!r}: it is "front" or "back"')
        return next(iter(spaces.entries.items(*bounds, reverse=side == "back", limit=1)), None)

    def push(
        self,
        value: Any,
        prefix: str | None = None,
        side: Side = "back",
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Adds a value at an end of a queue, and returns its key."""
        form, stored = self._disk.store(value.read() if read else value)
        with self._transact(retry) as spaces:
            found = self._end(spaces, self._queue(prefix), side)
            number = _QUEUE_START
            if found is not None:
                last = self._disk.key_of(found[0], b"")
                number = last if prefix is None else int(last[len(prefix) + 1 :])
                number += 1 if side == "back" else -1
            key = number if prefix is None else f"{prefix}-{number:015d}"
            packed, kept = self._disk.key(key)
            self._store(spaces, packed, kept, form, stored, expire, tag)
        return key

    def _take(self, bounds: Any, end: Any, remove: bool, retry: bool) -> tuple[Any, Record] | None:
        """Returns the entry at an end that has not expired. Removes those that have."""
        with self._transact(retry) as spaces:
            while (found := end(spaces, bounds)) is not None:
                packed, data = found
                record = self._live(data)
                if record is None or remove:
                    self._remove(spaces, packed, data)
                if record is not None:
                    return self._disk.key_of(packed, record.kept), record
        return None

    def pull(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: Side = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Removes and returns key and value at an end of a queue, or `default`."""
        end = functools.partial(self._end, side=side)
        found = self._take(self._queue(prefix), end, True, retry)
        return self._pair(found, default, expire_time, tag)

    def peek(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: Side = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Returns key and value at an end of a queue, or `default`."""
        end = functools.partial(self._end, side=side)
        found = self._take(self._queue(prefix), end, False, retry)
        return self._pair(found, default, expire_time, tag)

    def _pair(self, found: tuple[Any, Record] | None, default: Any, expire_time: bool, tag: bool) -> Any:
        if found is None:
            return self._with_extras(default, None, None, expire_time, tag)
        key, record = found
        value = self._disk.fetch(record.form, record.value)
        return self._with_extras((key, value), record.expire_time, record.tag, expire_time, tag)

    def peekitem(
        self, last: bool = True, expire_time: bool = False, tag: bool = False, retry: bool = False
    ) -> Any:
        """Returns key and value of the item that was added last, or first. Raises `KeyError` if there is
        none."""

        def end(spaces: Spaces, _: None) -> tuple[bytes, bytes] | None:
            found = spaces.order.last() if last else spaces.order.first()
            return None if found is None else (found[1], spaces.entries[found[1]])

        found = self._take(None, end, False, retry)
        if found is None:
            raise KeyError("the cache is empty")
        return self._pair(found, None, expire_time, tag)

    # All entries

    def __len__(self) -> int:
        return len(self._now().order)

    def __bool__(self) -> bool:
        return len(self) > 0

    def _walk(self, reverse: bool) -> Iterator[Any]:
        spaces = self._now()
        for packed in spaces.order.values(reverse=reverse):
            key = self._key(spaces, packed)
            if key is not ENOVAL:
                yield key

    def _key(self, spaces: Spaces, packed: bytes) -> Any:
        data = spaces.entries.get(packed)
        return ENOVAL if data is None else self._disk.key_of(packed, record_of(data).kept)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(False)

    def __reversed__(self) -> Iterator[Any]:
        return self._walk(True)

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """The keys in their order."""
        for packed, data in self._now().entries.items(reverse=reverse):
            yield self._disk.key_of(packed, record_of(data).kept)

    def _delete_all(self, packed: Iterable[bytes], retry: bool) -> int:
        with self._transact(retry) as spaces:
            count = 0
            for key in packed:
                data = spaces.entries.get(key)
                if data is not None:
                    self._remove(spaces, key, data)
                    count += 1
            return count

    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Removes what has expired, and returns how much."""
        end = _tuple.pack((time.time() if now is None else now,))
        with self._transact(retry) as spaces:
            # Not `list`: it asks for the length, which a transaction has to count.
            return self._delete_all([packed for packed in spaces.expiry.values(None, end)], retry)

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Removes the items with this tag, and returns how many."""
        with self._transact(retry) as spaces:
            tagged = [key for key, data in spaces.entries.items() if record_of(data).tag == tag]
            return self._delete_all(tagged, retry)

    def clear(self, retry: bool = False) -> int:
        """Removes all items, and returns how many."""
        with self._transact(retry) as spaces:
            count = len(spaces.order)
            for name in ("entries", "order", "expiry", "rank", "ranks"):
                getattr(spaces, name).clear()
            spaces.settings["size"] = bytes(8)
            return count

    def volume(self) -> int:
        """Returns the bytes of all items."""
        return int.from_bytes(self._now().settings.get("size", bytes(8)), "little", signed=True)

    def _cull(self, spaces: Spaces, now: float, limit: int) -> int:
        """Removes up to `limit` items: those that have expired, then what the policy evicts."""
        if limit <= 0:
            return 0
        end = _tuple.pack((now,))
        # A walk in a transaction sorts all that it has written, so the committed state is asked first.
        first = next(iter(self._committed().expiry.keys(None, end, limit=1)), None)
        # Not `list`: it asks for the length, which a transaction has to count.
        packed = [] if first is None else [one for one in spaces.expiry.values(None, end, limit=limit)]
        count = self._delete_all(packed, False)
        size = int.from_bytes(spaces.settings.get("size", bytes(8)), "little", signed=True)
        if count < limit and size > self._settings["size_limit"]:
            count += self._delete_all([one for one in spaces.rank.values(limit=limit - count)], False)
        return count

    def cull(self, retry: bool = False) -> int:
        """Removes what has expired, and what exceeds the size limit. Returns how much."""
        now = time.time()
        count = self.expire(now)
        while self.volume() > self._settings["size_limit"]:
            with self._transact(retry) as spaces:
                removed = self._cull(spaces, now, 10)
            if removed == 0:
                break
            count += removed
        return count

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Returns the numbers of hits and misses; has them counted, or not."""
        with self._transact() as spaces:
            names = ("hits", "misses")
            hits, misses = (
                int.from_bytes(spaces.settings.get(name, bytes(8)), "little", signed=True) for name in names
            )
            if reset:
                spaces.settings.update(dict.fromkeys(names, bytes(8)))
        if self._settings["statistics"] != int(enable):
            self.reset("statistics", int(enable))
        return hits, misses

    def create_tag_index(self) -> None:
        """Sets `tag_index`, which changes nothing: `evict` reads all items."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Unsets `tag_index`."""
        self.reset("tag_index", 0)

    def check(self, fix: bool = False, retry: bool = False) -> list[warnings.WarningMessage]:
        """Checks the database and the agreement of its parts. Returns warnings; `fix` mends what it can."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for problem in self._use().shared.db.check()["problems"]:
                warnings.warn(problem, stacklevel=2)
            with self._transact(retry) as spaces:
                size = 0
                for packed, data in spaces.entries.items():
                    size += len(packed) + len(data) + _OVERHEAD
                    if spaces.order.get(_row(record_of(data).row)) != packed:
                        warnings.warn(f"an item is not in the order: {packed!r}", stacklevel=2)
                        if fix:
                            spaces.order[_row(record_of(data).row)] = packed
                if len(spaces.order) != len(spaces.entries):
                    warnings.warn("the order has other items than there are", stacklevel=2)
                if size != self.volume():
                    warnings.warn(f"the volume is {size}, not {self.volume()}", stacklevel=2)
                    if fix:
                        spaces.settings["size"] = size.to_bytes(8, "little")
        return list(found)

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Iterable[Any] = (),
    ) -> Callable[[Callable[..., Any]], Any]:
        """Makes a function return what the cache has for its arguments."""
        if callable(name):
            raise TypeError("memoize takes a name: write `@cache.memoize()`")
        return memoize(self, () if name is None else (name,), typed, expire, tag, ignore)

    # Life

    def close(self) -> None:
        """Ends the use of the database by this thread. The next call begins it again.

        The last thread closes the database. The end of a thread ends its uses.
        """
        use: Use | None = self._local.__dict__.pop("use", None)
        if use is not None:
            use.end()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._directory, self._timeout, self._disk_class

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]


