"""The databases of caches: all caches of a process that use one directory share one database."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import esker

__all__ = ["Shared", "Spaces", "Use"]

_guard = threading.Lock()
_open: dict[str, Shared] = {}


class Spaces:
    """The keyspaces of one cache, in the newest state or in a transaction.

    - `entries`: keys to records. `order`: numbers of rows to keys, the oldest first.
    - `expiry`: (time, row) to keys. `rank`: (rank, row) to keys, what is evicted first comes first.
    - `ranks`: rows to their keys in `rank`. `settings`: names to JSON, and counters.
    """

    __slots__ = ("entries", "expiry", "order", "rank", "ranks", "settings")

    def __init__(self, of: esker.Db | esker.Transaction, prefix: str) -> None:
        for name in self.__slots__:
            setattr(self, name, of[prefix + name])

    entries: esker.Keyspace
    order: esker.Keyspace
    expiry: esker.Keyspace
    rank: esker.Keyspace
    ranks: esker.Keyspace
    settings: esker.Keyspace


class Shared:
    """An open database, and the transaction of the thread that writes it."""

    def __init__(self, path: str, durability: str) -> None:
        self.path, self.users = path, 0
        self.db = esker.open(path, durability=durability, memory="256MiB")
        self.lock = threading.RLock()
        # The transaction, and the thread that has it.
        self.transaction: esker.Transaction | None = None
        self.owner = 0

    @contextmanager
    def writing(self) -> Iterator[esker.Transaction]:
        """A transaction of this thread: the one that it has, or a new one, which commits at the end.

        The lock lets one thread write at a time, so transactions never conflict.
        """
        with self.lock:
            if self.transaction is not None:
                yield self.transaction
                return
            with self.db.transaction(isolation="snapshot") as transaction:
                self.transaction, self.owner = transaction, threading.get_ident()
                try:
                    yield transaction
                finally:
                    self.transaction, self.owner = None, 0

    def current(self) -> esker.Transaction | None:
        """Returns the transaction that this thread has."""
        return self.transaction if self.owner == threading.get_ident() else None


def acquire(path: str, durability: str) -> Shared:
    """Opens a database, or shares the one that is open."""
    path = os.path.realpath(path)
    with _guard:
        shared = _open.get(path)
        if shared is None:
            shared = _open[path] = Shared(path, durability)
        shared.users += 1
        return shared


def release(shared: Shared) -> None:
    """Closes the database once no cache uses it."""
    with _guard:
        shared.users -= 1
        if shared.users > 0:
            return
        _open.pop(shared.path, None)
        try:
            shared.db.close()
        except esker.Forked:
            pass


class Use:
    """A thread's use of the database of a cache. It ends with the thread or the cache at the latest."""

    __slots__ = ("_is_over", "_process", "shared", "spaces")

    def __init__(self, path: str, durability: str, prefix: str) -> None:
        self._is_over, self._process = True, os.getpid()
        self.shared = acquire(path, durability)
        self._is_over = False
        self.spaces = Spaces(self.shared.db, prefix)

    def end(self) -> None:
        """Gives the database back. The second call does nothing."""
        # A child that was forked has other uses than its parent.
        if not self._is_over and self._process == os.getpid():
            self._is_over = True
            release(self.shared)

    def __del__(self) -> None:
        try:
            self.end()
        except Exception:  # noqa: BLE001
            pass  # at the end of the interpreter


def _after_fork() -> None:
    """The databases of the parent are of no use to a child, which opens its own."""
    global _guard
    _guard = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
