"""How a cache writes keys and values: without pickle, unless `PickleDisk` is asked for."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import zlib
from typing import Any

from .. import tuple as _tuple

__all__ = ["Disk", "JSONDisk", "PickleDisk"]

# Longer keys are kept in the record, and found by their digest.
_KEY_BYTES_MAX = 60_000
_LONG = "\0long"
_OTHER = "\0other"

_BYTES, _TEXT, _INT, _JSON, _PICKLE = range(5)


def _plain(value: Any) -> Any:
    """Returns what JSON can write: other types are marked by an object with one name, "!" and the type."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is dict:
        if all(type(key) is str and not key.startswith("!") for key in value):
            return {key: _plain(item) for key, item in value.items()}
        return {"!dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if type(value) in (tuple, set, frozenset):
        return {f"!{type(value).__name__}": [_plain(item) for item in value]}
    if type(value) in (bytes, bytearray):
        return {f"!{type(value).__name__}": base64.b64encode(value).decode()}
    raise TypeError(
        f"a cache cannot hold a {type(value).__name__} without pickle: see `esker.cache.PickleDisk`"
    )


_RESTORE: dict[str, Any] = {
    "!dict": dict,
    "!tuple": tuple,
    "!set": set,
    "!frozenset": frozenset,
    "!bytes": base64.b64decode,
    "!bytearray": lambda text: bytearray(base64.b64decode(text)),
}


def _restored(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        [(name, content)] = value.items()
        if name in _RESTORE:
            return _RESTORE[name](content)
    return value


class Disk:
    """Writes `None`, numbers, text, bytes, and lists, tuples, sets and dicts of those."""

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self.directory = directory
        #: Values of this size and more are returned as readers with `read=True`.
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol

    def key(self, key: Any) -> tuple[bytes, bytes]:
        """Returns the bytes by which a key is found, and those that have to be kept of it beside them."""
        # Equal numbers are the same key, as in a dict.
        if type(key) is float and key.is_integer():
            key = int(key)
        try:
            packed = _tuple.pack((key,))
        except (TypeError, OverflowError):
            packed = _tuple.pack((_OTHER, self.dumps(key)))
        if len(packed) <= _KEY_BYTES_MAX:
            return packed, b""
        return _tuple.pack((_LONG, hashlib.blake2b(packed, digest_size=32).digest())), packed

    def key_of(self, packed: bytes, kept: bytes) -> Any:
        """Returns the key of what `key` has returned."""
        fields = _tuple.unpack(kept or packed)
        return self.loads(fields[1]) if fields[0] == _OTHER and len(fields) == 2 else fields[0]

    def dumps(self, value: Any) -> bytes:
        """Returns the bytes of a value that is no bytes, text or number."""
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, data: bytes) -> Any:
        """Returns the value of what `dumps` has returned."""
        return json.loads(data, object_hook=_restored)

    def store(self, value: Any) -> tuple[int, bytes]:
        """Returns the form and the bytes of a value."""
        if type(value) is bytes:
            return _BYTES, value
        if type(value) is str:
            return _TEXT, value.encode("utf-8", "surrogatepass")
        if type(value) is int and -(2**63) <= value < 2**63:
            return _INT, value.to_bytes(8, "big", signed=True)
        return _JSON, self.dumps(value)

    def fetch(self, form: int, data: bytes) -> Any:
        """Returns the value of what `store` has returned."""
        if form == _BYTES:
            return data
        if form == _TEXT:
            return data.decode("utf-8", "surrogatepass")
        if form == _INT:
            return int.from_bytes(data, "big", signed=True)
        return self.loads(data)


class PickleDisk(Disk):
    """Writes any object by pickle. Reading runs code that the bytes name: only for caches that no one else
    writes."""

    def dumps(self, value: Any) -> bytes:
        """Returns the pickle of a value."""
        return pickle.dumps(value, protocol=self.pickle_protocol or pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        """Returns the value of a pickle."""
        return pickle.loads(data)  # noqa: S301


class JSONDisk(Disk):
    """Writes keys and values as compressed JSON."""

    def __init__(self, directory: str, compress_level: int = 1, **options: Any) -> None:
        super().__init__(directory, **options)
        self.compress_level = compress_level

    def key(self, key: Any) -> tuple[bytes, bytes]:
        """Returns the bytes by which a key is found, and those that have to be kept of it beside them."""
        return super().key(self._dump(key))

    def key_of(self, packed: bytes, kept: bytes) -> Any:
        """Returns the key of what `key` has returned."""
        return json.loads(zlib.decompress(super().key_of(packed, kept)))

    def store(self, value: Any) -> tuple[int, bytes]:
        """Returns the form and the bytes of a value."""
        return _JSON, self._dump(value)

    def fetch(self, form: int, data: bytes) -> Any:
        """Returns the value of what `store` has returned."""
        return json.loads(zlib.decompress(data))

    def _dump(self, value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode(), self.compress_level)
