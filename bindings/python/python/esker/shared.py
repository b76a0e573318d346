"""A database that several processes write.

    with esker.open_shared("data") as shared:           # the same in each process
        users = shared["users"]                          # a MutableMapping; text is encoded in UTF-8
        users["ann"] = "1"
        with shared.transaction() as t:
            t[users].add("visits", 1)
        print(shared.is_host, dict(users.items("a", "b")))

The process that comes first is the host: it has the database open, and serves the others, its guests,
through a socket in the directory. When it goes, even by a kill, a guest takes over. Each process of the same
user can take part, also one in Rust (`esker-shared`).

The classes have the interface of those of `esker`, except for what only a host can do. `docs/processes.md`
lists it, and says what is promised and what it costs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _esker
from ._errors import Conflict, Deadlock, HostGone, Invalid, KeyspaceNotFound

if TYPE_CHECKING:
    from ._esker import _Data, _Durability, _Isolation, _Seconds

__all__ = ["Batch", "BatchView", "Db", "Keyspace", "Range", "Snapshot", "Transaction", "View"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

# Conflicts after which a transaction takes the exclusive turn.
_ATTEMPTS_BEFORE_TURN = 8
_MISSING: Any = object()


class Range(Generic[_T_co]):
    """The entries, keys or values of a range. Each iteration begins with the state of that moment."""

    def __init__(
        self,
        map_: _esker.SharedMap,
        of: Callable[[tuple[bytes, bytes | None]], _T_co],
        bounds: tuple[_Data | None, _Data | None, _Data | None],
        options: tuple[bool, bool, int | None],
    ) -> None:
        self._map, self._of, self._bounds, self._options = map_, of, bounds, options

    def __iter__(self) -> Iterator[_T_co]:
        walk = self._map.walk(self._bounds, *self._options)
        while chunk := walk.chunk():
            yield from map(self._of, chunk)

    def __reversed__(self) -> Iterator[_T_co]:
        keys_only, reverse, limit = self._options
        if limit is not None:
            raise Invalid("a range with a limit is not reversed: pass `reverse`")
        return iter(Range(self._map, self._of, self._bounds, (keys_only, not reverse, None)))

    def __len__(self) -> int:
        _, reverse, limit = self._options
        if self._bounds == (None, None, None):
            return self._map.len() if limit is None else min(limit, self._map.len())
        walk = self._map.walk(self._bounds, True, reverse, limit)
        return sum(len(chunk) for chunk in iter(walk.chunk, []))


def _key(entry: tuple[bytes, bytes | None]) -> bytes:
    return entry[0]


def _value(entry: tuple[bytes, bytes | None]) -> bytes:
    assert entry[1] is not None
    return entry[1]


def _item(entry: tuple[bytes, bytes | None]) -> tuple[bytes, bytes]:
    return entry[0], _value(entry)


class View(Mapping[Any, bytes]):
    """One keyspace, for reading."""

    def __init__(self, name: str, map_: _esker.SharedMap) -> None:
        self._map = map_
        #: The name by which it was opened.
        self.name = name

    def __repr__(self) -> str:
        return f"<esker shared keyspace {self.name!r}>"

    def __len__(self) -> int:
        return self._map.len()

    def __bool__(self) -> bool:
        return not self._map.is_empty()

    def __contains__(self, key: Any) -> bool:
        return self._map.contains(key)

    def __getitem__(self, key: _Data) -> bytes:
        found = self._map.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self.keys())

    def get(self, key: _Data, default: Any = None) -> Any:
        """Returns the value of a key, or `default`."""
        found = self._map.get(key)
        return default if found is None else found

    def get_many(self, keys: Iterable[_Data]) -> list[bytes | None]:
        """Returns the values of several keys as of the same commit."""
        return self._map.get_many(list(keys))

    def ttl(self, key: _Data) -> float | None:
        """Returns the remaining lifetime of a key in seconds, `None` if it is unlimited."""
        found = self._map.ttl(key)
        if found is None:
            raise KeyError(key)
        return found[0]

    def first(self) -> tuple[bytes, bytes] | None:
        """Returns the first entry."""
        return self._map.first()

    def last(self) -> tuple[bytes, bytes] | None:
        """Returns the last entry."""
        return self._map.last()

    def items(  # type: ignore[override]
        self,
        start: _Data | None = None,
        end: _Data | None = None,
        *,
        prefix: _Data | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Range[tuple[bytes, bytes]]:
        """The entries of a range of keys, in order."""
        return Range(self._map, _item, (start, end, prefix), (False, reverse, limit))

    def keys(  # type: ignore[override]
        self,
        start: _Data | None = None,
        end: _Data | None = None,
        *,
        prefix: _Data | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Range[bytes]:
        """The keys of a range, in order. No values are sent."""
        return Range(self._map, _key, (start, end, prefix), (True, reverse, limit))

    def values(  # type: ignore[override]
        self,
        start: _Data | None = None,
        end: _Data | None = None,
        *,
        prefix: _Data | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Range[bytes]:
        """The values of a range of keys, in the order of the keys."""
        return Range(self._map, _value, (start, end, prefix), (False, reverse, limit))


class Keyspace(View, MutableMapping[Any, bytes]):
    """One keyspace, in its newest state or in a transaction."""

    def __init__(self, name: str, map_: _esker.SharedMap, ttl: _Seconds | None = None) -> None:
        super().__init__(name, map_)
        self._ttl = ttl

    def __setitem__(self, key: _Data, value: _Data) -> None:
        self._map.put(key, value, self._ttl)

    def __delitem__(self, key: _Data) -> None:
        if self._map.pop(key) is None:
            raise KeyError(key)

    def put(self, key: _Data, value: _Data, *, ttl: _Seconds | None = None) -> None:
        """Sets a key to a value, which expires after `ttl` seconds."""
        self._map.put(key, value, self._ttl if ttl is None else ttl)

    def delete(self, key: _Data) -> None:
        """Removes a key, which may be missing."""
        self._map.delete(key)

    def delete_range(
        self, start: _Data | None = None, end: _Data | None = None, *, prefix: _Data | None = None
    ) -> None:
        """Removes all keys of a range, in one step."""
        self._map.delete_range(start, end, prefix)

    def clear(self) -> None:
        """Removes all keys."""
        self._map.delete_range(None, None, None)

    def merge(self, key: _Data, operand: _Data) -> None:
        """Merges an operand into a key with the merge operator of the keyspace."""
        self._map.merge(key, operand)

    def add(self, key: _Data, by: int = 1) -> int:
        """Adds to a number of 8 bytes, and returns the number before."""
        return self._map.add(key, by)

    def compare_and_swap(self, key: _Data, expected: _Data | None, value: _Data | None) -> bool:
        """Sets a key to `value` if its value is `expected`. Returns whether it did."""
        return self._map.compare_and_swap(key, expected, value)

    def pop(self, key: _Data, default: Any = _MISSING) -> Any:
        """Removes a key and returns its value, or the default."""
        found = self._map.pop(key)
        if found is not None:
            return found
        if default is _MISSING:
            raise KeyError(key)
        return default

    def pop_first(self) -> tuple[bytes, bytes] | None:
        """Removes and returns the first entry."""
        return self._map.pop_first()

    def pop_last(self) -> tuple[bytes, bytes] | None:
        """Removes and returns the last entry."""
        return self._map.pop_last()

    def popitem(self) -> tuple[bytes, bytes]:
        """Removes and returns the last entry."""
        found = self._map.pop_last()
        if found is None:
            raise KeyError("the keyspace is empty")
        return found

    def using(self, *, durability: _Durability | None = None, ttl: _Seconds | None = None) -> Keyspace:
        """Returns a handle that commits with this durability, and whose new values expire."""
        map_ = self._map if durability is None else self._map.using(durability)
        return Keyspace(self.name, map_, self._ttl if ttl is None else ttl)


class Snapshot:
    """The state of all keyspaces at one commit. It ends with the host: `HostGone`."""

    def __init__(self, db: Db, snapshot: _esker.SharedSnapshot) -> None:
        self._db, self._snapshot = db, snapshot
        self.seqno = snapshot.seqno

    def __getitem__(self, given: View | str) -> View:
        name, map_ = self._db._found(given, create=False)
        return View(name, self._snapshot.map(map_))

    def close(self) -> None:
        """Ends the snapshot."""
        self._snapshot.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Transaction:
    """Reads and writes that are committed together. It ends with the host: `HostGone`."""

    def __init__(self, db: Db, transaction: _esker.SharedTransaction, *, is_managed: bool = False) -> None:
        self._db, self._transaction, self._is_managed = db, transaction, is_managed

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._transaction.is_open

    def __getitem__(self, given: View | str) -> Keyspace:
        """Returns a keyspace in the transaction. A missing name is created, by a commit of its own."""
        name, map_ = self._db._found(given, create=True)
        return Keyspace(name, self._transaction.map(map_))

    def lock(self, keyspace: View | str, key: _Data, *, shared: bool = False) -> None:
        """Locks a key until the transaction ends: others that lock it wait."""
        self._transaction.lock(self._db._found(keyspace, create=True)[1], key, shared)

    def commit(self) -> int:
        """Commits, and returns the number of the commit. The transaction has ended in any case."""
        self._check_may_end()
        return self._transaction.commit()

    def rollback(self) -> None:
        """Drops the writes."""
        self._check_may_end()
        self._transaction.rollback()

    def _check_may_end(self) -> None:
        if self._is_managed:
            raise Invalid("`transact` ends this transaction: return, or raise an exception")

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None and self._transaction.is_open:
            self.commit()
        else:
            self._transaction.rollback()


class BatchView:
    """The writes of a batch to one keyspace."""

    def __init__(self, steps: list[tuple[Any, ...]], map_: _esker.SharedMap) -> None:
        self._steps, self._map = steps, map_

    def __setitem__(self, key: _Data, value: _Data) -> None:
        self.put(key, value)

    def put(self, key: _Data, value: _Data, *, ttl: _Seconds | None = None) -> None:
        """Sets a key to a value."""
        self._steps.append((self._map, key, value, ttl))

    def __delitem__(self, key: _Data) -> None:
        self.delete(key)

    def delete(self, key: _Data) -> None:
        """Removes a key, which may be missing."""
        self._steps.append((self._map, key, None, None))

    def delete_range(
        self, start: _Data | None = None, end: _Data | None = None, *, prefix: _Data | None = None
    ) -> None:
        """Removes all keys of a range."""
        self._steps.append((self._map, start, end, prefix, True))

    def clear(self) -> None:
        """Removes all keys."""
        self.delete_range()


class Batch:
    """Writes that are committed together at the end of a `with` block."""

    def __init__(self, db: Db, durability: _Durability | None) -> None:
        self._db, self._durability = db, durability
        self._steps: list[tuple[Any, ...]] = []

    def __getitem__(self, given: View | str) -> BatchView:
        return BatchView(self._steps, self._db._found(given, create=True)[1])

    def __len__(self) -> int:
        return len(self._steps)

    def commit(self) -> int:
        """Commits, and returns the number of the commit."""
        seqno = self._db._shared.commit(self._steps, self._durability)
        self._steps.clear()
        return seqno

    def rollback(self) -> None:
        """Drops the writes."""
        self._steps.clear()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None and self._steps:
            self.commit()
        self.rollback()


class Db(Mapping[str, Keyspace]):
    """An open database of several processes. Made by `esker.open_shared`."""

    def __init__(self, shared: _esker.Shared) -> None:
        self._shared = shared

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def is_host(self) -> bool:
        """Whether this process has the database open, and serves the others."""
        return self._shared.is_host

    def _found(self, given: View | str, *, create: bool) -> tuple[str, _esker.SharedMap]:
        if isinstance(given, View):
            return given.name, given._map
        find = self._shared.keyspace if create else self._shared.open_keyspace
        return given, find(given)

    def __getitem__(self, name: str) -> Keyspace:
        """Returns the keyspace with this name, which is created if it is missing."""
        return Keyspace(name, self._shared.keyspace(name))

    def open_keyspace(self, name: str) -> Keyspace:
        """Returns the keyspace with this name. Raises `KeyspaceNotFound` if there is none."""
        return Keyspace(name, self._shared.open_keyspace(name))

    def keyspaces(self) -> list[str]:
        """Returns the names of all keyspaces."""
        return self._shared.keyspaces()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keyspaces())

    def __len__(self) -> int:
        return len(self.keyspaces())

    def __contains__(self, name: object) -> bool:
        try:
            return bool(self._shared.open_keyspace(str(name)))
        except KeyspaceNotFound:
            return False

    def drop_keyspace(self, name: str) -> None:
        """Drops a keyspace and all entries in it."""
        self._shared.drop_keyspace(name)

    def rename_keyspace(self, old: str, new: str) -> None:
        """Renames a keyspace. Its handles stay valid."""
        self._shared.rename_keyspace(old, new)

    def snapshot(self) -> Snapshot:
        """Returns the state of all keyspaces at this moment."""
        return Snapshot(self, self._shared.snapshot())

    def batch(self, *, durability: _Durability | None = None) -> Batch:
        """Returns an empty batch: writes that are committed together."""
        return Batch(self, durability)

    def transaction(
        self, *, isolation: _Isolation | None = None, durability: _Durability | None = None
    ) -> Transaction:
        """Begins a transaction. In a `with` block it commits at the end, and rolls back on an exception."""
        return Transaction(self, self._shared.begin(isolation, durability))

    def transact(
        self,
        body: Callable[[Any], _T],
        *,
        isolation: _Isolation | None = None,
        durability: _Durability | None = None,
        attempts: int | None = None,
    ) -> _T:
        """Calls `body` with a transaction, commits it, and returns what `body` returned.

        It runs again after a conflict, and when the host has gone before the commit.
        """
        attempt = 1
        while True:
            turn: _Isolation | None = "exclusive" if attempt > _ATTEMPTS_BEFORE_TURN else isolation
            transaction = self._shared.begin(turn, durability)
            try:
                result = body(Transaction(self, transaction, is_managed=True))
                transaction.commit()
                return result
            except (Conflict, Deadlock, HostGone):
                if attempt == attempts:
                    raise
            finally:
                transaction.rollback()
            time.sleep(random.uniform(0, min(0.004, 50e-6 * 2**attempt)))
            attempt += 1

    def outcome(self, commit: Any) -> int | None:
        """Asks what became of a commit: the attribute of `OutcomeUnknown`, at most ten minutes after it.

        Returns the number of the commit at or before which it was applied. `None`: it never will be.
        """
        return self._shared.outcome(commit)

    def sync(self) -> None:
        """Makes all commits so far durable."""
        self._shared.sync()

    def close(self) -> None:
        """Ends the part of this process. If it is the host, a guest takes over."""
        self._shared.close()

    def __enter__(self) -> Db:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
