"""Esker with the interface of the standard library's `dbm` modules.

    import esker.dbm, shelve

    with esker.dbm.open("data", "c") as db:
        db["key"] = "value"
    shelf = shelve.Shelf(esker.dbm.open("objects", "c"))   # shelve pickles: open only what you trust

The entries are in the keyspace `dbm` of the database. Unlike the standard modules it survives a crash, and
its keys are in order. As with `gdbm`, writes reach the disk with `sync` and `close`, unless the flag has an
"s".
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from . import open as _open
from ._errors import Error
from ._esker import Db, Keyspace

if TYPE_CHECKING:
    from ._esker import _Data

__all__ = ["error", "open"]

_KEYSPACE = "dbm"


class error(Error, OSError):  # noqa: N801
    """A database cannot be opened or used: the cause is an `esker.Error`."""


class _Database(MutableMapping[Any, bytes]):
    """A database, as `open` returns it."""

    def __init__(self, db: Db, keyspace: Keyspace) -> None:
        self._db, self._keyspace = db, keyspace
        self._is_closed = False

    def _entries(self) -> Keyspace:
        if self._is_closed:
            raise error("the database was closed")
        return self._keyspace

    def __getitem__(self, key: _Data) -> bytes:
        return self._entries()[key]

    def __setitem__(self, key: _Data, value: _Data) -> None:
        self._entries()[key] = value

    def __delitem__(self, key: _Data) -> None:
        del self._entries()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Returns all keys."""
        return list(self._entries())

    def setdefault(self, key: _Data, default: _Data = b"") -> bytes:
        """Returns the value of a key. A missing key is set to `default` first."""
        return self._entries().setdefault(key, default)

    def clear(self) -> None:
        """Removes all entries."""
        self._entries().clear()

    def firstkey(self) -> bytes | None:
        """Returns the first key, or `None`."""
        first = self._entries().first()
        return None if first is None else first[0]

    def nextkey(self, key: _Data) -> bytes | None:
        """Returns the key behind this one, or `None`."""
        behind = (key.encode() if isinstance(key, str) else bytes(key)) + b"\0"
        return next(iter(self._entries().keys(behind, limit=1)), None)

    def reorganize(self) -> None:
        """Compacts the database."""
        self._db.compact()

    def sync(self) -> None:
        """Makes all writes durable."""
        self._db.sync()

    def close(self) -> None:
        """Makes all writes durable, and closes the database. May be called again."""
        self._is_closed = True
        self._db.close()

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _remove_empty_file(path: str) -> None:
    if os.path.isfile(path):
        if os.path.getsize(path):
            raise error(f"{path} is a file of something else")
        os.remove(path)


def open(  # noqa: A001
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes], flag: str = "r", mode: int = 0o666
) -> _Database:
    """Opens the database in a directory.

    The flag is "r": to read; "w": to read and write; "c": the same, and creates it; "n": creates it empty. A
    further "s" makes each write durable when it returns. `mode` has the permission bits of its files.
    """
    kind, others = flag[:1], flag[1:]
    if kind not in ("r", "w", "c", "n") or builtins.set(others) - {"f", "s", "u"}:
        raise ValueError(f'flag {flag!r}: it is "r", "w", "c" or "n", perhaps with an "s"')
    path = os.fsdecode(file)
    try:
        if kind == "r":
            db = _open(path, read_only=True)
            try:
                return _Database(db, db.open_keyspace(_KEYSPACE))
            except Error:
                db.close()
                raise
        durability = "sync" if "s" in others else "buffered"
        if kind == "n":
            _remove_empty_file(path)
        options: dict[str, Any] = {}
        if kind != "w" and not os.path.exists(path) and mode != 0o666:
            # The directory has to be entered as well.
            options["mode"] = mode | (mode & 0o444) >> 2
        db = _open(path, create=kind != "w", durability=durability, **options)
    except Error as cause:
        raise error(str(cause)) from cause
    keyspace = db[_KEYSPACE]
    if kind == "n":
        keyspace.clear()
    return _Database(db, keyspace)
