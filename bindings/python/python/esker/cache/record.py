"""The records of a cache: a value with its expiry and tag."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from .. import tuple as _tuple

__all__ = ["Record", "record_of"]

# Row, time of storing, time of expiry, form of the value, lengths of the tag and of the key that is kept.
_HEADER = struct.Struct(">QddBHI")


class Record(NamedTuple):
    row: int
    stored: float
    expires: float
    form: int
    tag: Any
    kept: bytes
    value: bytes

    @property
    def expire_time(self) -> float | None:
        return None if math.isinf(self.expires) else self.expires

    def pack(self) -> bytes:
        tag = b"" if self.tag is None else _tuple.pack((self.tag,))
        head = _HEADER.pack(self.row, self.stored, self.expires, self.form, len(tag), len(self.kept))
        return b"".join((head, tag, self.kept, self.value))


def record_of(data: bytes) -> Record:
    row, stored, expires, form, tag_len, kept_len = _HEADER.unpack_from(data)
    tag_end = _HEADER.size + tag_len
    tag = _tuple.unpack(data[_HEADER.size : tag_end])[0] if tag_len else None
    kept_end = tag_end + kept_len
    return Record(row, stored, expires, form, tag, data[tag_end:kept_end], data[kept_end:])
