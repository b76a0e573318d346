"""The exceptions of Esker. Each stands for errors of the engine on which a program acts in the same way."""

from __future__ import annotations

import pathlib


class Error(Exception):
    """The base of all errors of the engine."""

    #: The file or directory, where one is concerned.
    path: pathlib.Path | None = None
    #: The position of the damage in the file.
    offset: int | None = None
    #: The name of the keyspace, where one is concerned.
    keyspace: str | None = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class Io(Error, OSError):
    """The operating system refused an operation."""


class NoSpace(Error, OSError):
    """No space is left. Acknowledged data is safe, reads continue, and writes succeed again once there is
    space."""


class Corrupt(Error):
    """Bytes on disk are not what was written: see `path` and `offset`."""


class UnsupportedVersion(Error):
    """A file was written by a newer version of Esker."""


class Encryption(Error):
    """Encrypted files cannot be read, or files that should be encrypted are not."""


class NoDatabase(Error, FileNotFoundError):
    """The directory holds no database, or an unfinished one."""


class Locked(Error):
    """Another process, or another handle in this one, has the database open."""

    #: The process that has it open, if known.
    pid: int | None = None


class ReadOnly(Error):
    """The database was opened to read it."""


class Conflict(Error):
    """Another commit has changed what the transaction wrote or read. Run it again, as `Db.transact` does."""


class Deadlock(Error):
    """The transaction waits in a cycle of locks. Drop it, and run it again."""


class LockTimeout(Error, TimeoutError):
    """A lock, or the turn of an exclusive transaction, was not free in time."""


class Poisoned(Error):
    """A failure has stopped writes. Reads still work. Open the database again."""


class TooLong(Error, ValueError):
    """The key is longer than 65,535 bytes, or the value longer than 4 GiB - 1."""


class KeyspaceNotFound(Error, KeyError):
    """There is no keyspace of this name, or it was dropped."""


class KeyspaceExists(Error):
    """There is a keyspace of this name already."""


class Merge(Error):
    """The merge operator refused an operand or value, or the keyspace has no operator."""


class Gone(Error):
    """The change feed, or the history of a keyspace, no longer has what was asked for."""

    #: The oldest commit that can be read.
    oldest: int | None = None


class NoFeed(Error):
    """The database has no change feed: open it with `feed`."""


class FeedAhead(Error):
    """The reader of the change feed knows of commits that this database does not have."""


class AlreadyExists(Error, FileExistsError):
    """Something exists where a call would create a file or directory."""


class Panicked(Error):
    """A thread of the engine panicked. This is a bug."""


class Forked(Error):
    """This process was forked from the one that opened the database. Open it again in the child."""


class Closed(Error):
    """The database was closed."""


class Invalid(Error, ValueError):
    """An argument or option is not valid, or an object was used after its end."""


class NoHost(Error, TimeoutError):
    """No process answered for a shared database in time. Nothing was written."""


class HostGone(Error):
    """The process that held this transaction, snapshot or walk has gone. Nothing was written: begin again."""


class OutcomeUnknown(Error):
    """The reply to a commit was lost. `esker.shared.Db.outcome` asks again what became of it."""

    #: The name of the commit, for `outcome`.
    commit: object = None
