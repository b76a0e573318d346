"""Esker: an embedded, ordered, transactional key-value engine.

    import esker

    with esker.open("data") as db:
        users = db["users"]                     # a MutableMapping of bytes to bytes
        users["ann"] = "1"                      # durable when it returns
        with db.transaction() as t:             # commits at the end, rolls back on an exception
            t[users]["bob"] = t[users]["ann"]
        for key, value in users.items("a", "c"):
            print(key, value)
"""

from __future__ import annotations

import atexit as _atexit
import builtins as _builtins
import os as _os
import re as _re
import weakref as _weakref
from collections.abc import Mapping as _Mapping
from collections.abc import MutableMapping as _MutableMapping
from functools import wraps as _wraps
from typing import Any as _Any

from . import _esker, shared, tuple
from ._errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Corrupt,
    Deadlock,
    Encryption,
    Error,
    FeedAhead,
    Forked,
    Gone,
    HostGone,
    Invalid,
    Io,
    KeyspaceExists,
    KeyspaceNotFound,
    Locked,
    LockTimeout,
    Merge,
    NoDatabase,
    NoFeed,
    NoHost,
    NoSpace,
    OutcomeUnknown,
    Panicked,
    Poisoned,
    ReadOnly,
    TooLong,
    UnsupportedVersion,
)
from ._esker import (
    Batch,
    BatchView,
    Commit,
    Db,
    Entries,
    Feed,
    Follower,
    Keyspace,
    Range,
    Savepoint,
    Snapshot,
    Transaction,
    View,
    backups,
    restore,
)
from ._types import Change
from .codecs import Codec, Keys, json, keys, msgpack, pickle, raw, text
from .table import Table

__version__: str = _esker.__version__

__all__ = [
    "AlreadyExists", "Batch", "BatchView", "Change", "Closed", "Codec", "Commit", "Conflict", "Corrupt",
    "Db", "Deadlock", "Encryption", "Entries", "Error", "Feed", "FeedAhead", "Follower", "Forked", "Gone",
    "HostGone", "Invalid", "Io", "Keys", "Keyspace", "KeyspaceExists", "KeyspaceNotFound", "LockTimeout",
    "Locked", "Merge", "NoDatabase", "NoFeed", "NoHost", "NoSpace", "OutcomeUnknown", "Panicked",
    "Poisoned", "Range", "ReadOnly", "Savepoint", "Snapshot", "Table", "TooLong", "Transaction",
    "UnsupportedVersion", "View", "backups", "follow", "json", "keys", "memory", "msgpack", "open",
    "open_shared", "pickle", "raw", "restore", "shared", "text", "transactional", "tuple",
]  # fmt: skip

_Mapping.register(View)
_MutableMapping.register(Keyspace)
_Mapping.register(Db)
_os.register_at_fork(after_in_child=_esker.after_fork)

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = _re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", _re.IGNORECASE)

# Databases that are open when the program ends.
_open_databases: _weakref.WeakSet[Db | shared.Db] = _weakref.WeakSet()


def _bytes_of(size: int | str) -> int:
    """Returns the bytes of a size such as 1024, "64MiB" or "1 GB". Units are powers of 1024."""
    if not isinstance(size, str):
        return size
    match = _SIZE.fullmatch(size)
    if match is None:
        raise Invalid(f'size {size!r}: it is a number of bytes, or text like "64MiB"')
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _options(options: dict[str, _Any]) -> dict[str, _Any]:
    if options.get("memory") is not None:
        options["memory"] = _bytes_of(options["memory"])
    feed = options.get("feed")
    if feed is True:
        feed = ("64MiB", 3600)
    if feed in (None, False):
        options["feed"] = None
    else:
        size, seconds = feed
        options["feed"] = (_bytes_of(size), seconds)
    if options.get("blobs") is not None:
        options["blobs"] = _bytes_of(options["blobs"])
    return options


def _opened(path: str | _os.PathLike[str] | None, read_only: bool, options: dict[str, _Any]) -> Db:
    db = _esker.open(path, read_only, _options(options))
    _open_databases.add(db)
    return db


def open(  # noqa: A001
    path: str | _os.PathLike[str],
    *,
    memory: int | str | None = None,
    durability: str | None = None,
    create: bool = True,
    read_only: bool = False,
    feed: bool | _builtins.tuple[int | str, float] | None = None,
    **options: _Any,
) -> Db:
    """Opens the database in a directory.

    - `memory`: the budget for cache, memtables and indexes: bytes, or text like "1GiB", which is the default.
    - `durability`: what commits wait for: "sync" (the default): the disk; "buffered": the operating system;
      "none": nothing.
    - `create`: whether to create a missing database.
    - `read_only`: reads the database, and changes nothing.
    - `feed`: keeps commits for `Db.feed`: a pair of bytes and seconds; `True` is 64 MiB and an hour.
    - `blobs`: values from this size on are stored in blob files: bytes, or text like "4KiB"; `False`: none.
    - Others: `isolation`, `compression`, `error_if_exists`, `lock_timeout`, `lock_patience`, `sync_every`,
      `mode`.
    """
    options.update(memory=memory, durability=durability, create=create, feed=feed)
    # `None` would be a database in memory.
    return _opened(_os.fspath(path), read_only, options)


def memory(*, feed: bool | _builtins.tuple[int | str, float] | None = None, **options: _Any) -> Db:
    """Opens a new database in memory. Its data is gone with it."""
    options.update(feed=feed)
    return _opened(None, False, options)


def follow(path: str | _os.PathLike[str]) -> Follower:
    """Opens a database to read it while another process writes it."""
    return _esker.follow(path)


def open_shared(
    path: str | _os.PathLike[str],
    *,
    wait: float | None = None,
    transaction_idle: float | None = None,
    **options: _Any,
) -> shared.Db:
    """Opens the database in a directory together with other processes: see `esker.shared`.

    - `wait`: seconds that a call waits for the host at most, by default 30.
    - `transaction_idle`: seconds after which the host ends a guest's idle transaction, by default 10.
    - Others: those of `open`. All processes use the same ones, as each can become the host.
    """
    db = shared.Db(_esker.open_shared(path, _options(options), wait, transaction_idle))
    _open_databases.add(db)
    return db


def transactional(db: Db | shared.Db, **options: _Any) -> _Any:
    """Makes functions transactions: `@esker.transactional(db)` passes a transaction as first argument.

    The options are those of `Db.transact`, which runs the function again after a conflict.
    """

    def decorate(function: _Any) -> _Any:
        @_wraps(function)
        def run(*args: _Any, **kwargs: _Any) -> _Any:
            return db.transact(lambda t: function(t, *args, **kwargs), **options)

        return run

    return decorate


@_atexit.register
def _close_all() -> None:
    for db in list(_open_databases):
        try:
            db.close()
        except Error:
            pass
