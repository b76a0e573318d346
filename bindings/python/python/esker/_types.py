"""Small types that calls of the engine return."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A change that a commit made."""

    #: "put", "merge", "delete", "expire", "delete_range", "named", "unnamed", "options" or "internal".
    kind: str
    #: The name of the keyspace; of "named" and "unnamed" the name itself. `None`: the keyspace was dropped.
    keyspace: str | None
    #: The key. Of "delete_range" the first key.
    key: bytes | None
    #: The value or operand. Of "delete_range" the first key behind the range; `None`: it has no end.
    value: bytes | None
    #: When a value that was put expires, in seconds since 1970.
    expires_at: float | None = None
    #: The number of the keyspace.
    keyspace_id: int | None = None
    #: When an operand was merged, in seconds since 1970.
    merged_at: float | None = None
    #: Seconds that a value lasts which begins with the operand. `None`: it does not expire.
    lifetime: float | None = None
