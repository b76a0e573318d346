"""Keys of several fields, in the tuple encoding of FoundationDB.

Encoded tuples sort in the order of their fields, and programs in other languages read them. Fields are
`None`, `bytes`, `str`, `int`, `float`, `bool`, `uuid.UUID`, `SingleFloat` and tuples of these.

    events[esker.tuple.pack(("ann", 7))] = b"..."
    start, end = esker.tuple.prefix_range(("ann",))
    for key, value in events.items(start, end):
        user, number = esker.tuple.unpack(key)
"""

from __future__ import annotations

from ._esker import SingleFloat, pack, prefix_range, unpack

__all__ = ["SingleFloat", "pack", "prefix_range", "unpack"]
