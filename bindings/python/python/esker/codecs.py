"""How typed tables write keys and values."""

from __future__ import annotations

import json as _json
import pickle as _pickle
import uuid as _uuid
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from . import tuple as _tuple
from ._errors import Invalid

__all__ = ["Codec", "Keys", "json", "keys", "msgpack", "pickle", "raw", "text"]

_T = TypeVar("_T")
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")

_FIELD_TYPES = (str, bytes, int, float, bool, _uuid.UUID, _tuple.SingleFloat, tuple, type(None))


class Codec(Protocol[_T]):
    """Turns values into bytes and back."""

    def encode(self, value: _T, /) -> bytes:
        """Returns the bytes of a value."""

    def decode(self, data: bytes, /) -> _T:
        """Returns the value of bytes."""


class _Raw:
    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"a value of this table is bytes, not {type(value).__name__}")
        return value

    def decode(self, data: bytes) -> bytes:
        return data


class _Text:
    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a value of this table is str, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


class _Json:
    def encode(self, value: Any) -> bytes:
        return _json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        return _json.loads(data)


class _MessagePack:
    """Needs the package `msgpack`: `pip install esker[msgpack]`."""

    def encode(self, value: Any) -> bytes:
        import msgpack as package

        return cast(bytes, package.packb(value, use_bin_type=True))

    def decode(self, data: bytes) -> Any:
        import msgpack as package

        return package.unpackb(data, raw=False, strict_map_key=False)


class _Pickle:
    """Runs code that the bytes name: only for databases that no one else writes."""

    def encode(self, value: Any) -> bytes:
        return _pickle.dumps(value, protocol=_pickle.HIGHEST_PROTOCOL)

    def decode(self, data: bytes) -> Any:
        return _pickle.loads(data)  # noqa: S301


#: Bytes as they are.
raw: Codec[bytes] = _Raw()
#: Text in UTF-8.
text: Codec[str] = _Text()
#: JSON.
json: Codec[Any] = _Json()
#: MessagePack. Needs the package `msgpack`.
msgpack: Codec[Any] = _MessagePack()
#: Pickle. Reading runs code that the bytes name: only for databases that no one else writes.
pickle: Codec[Any] = _Pickle()


class Keys(Generic[_T]):
    """Keys of fields with these types, in the order of their fields: see `esker.tuple`."""

    def __init__(self, types: tuple[Any, ...]) -> None:
        if not types:
            raise Invalid("a key has at least one field")
        for kind in types:
            for one in kind if isinstance(kind, tuple) else (kind,):
                if one not in _FIELD_TYPES:
                    raise Invalid(f"a field of a key cannot be of type {one!r}")
        self._types = types

    def _fields(self, key: Any, *, is_prefix: bool) -> tuple[Any, ...]:
        is_scalar = len(self._types) == 1 and not (is_prefix and isinstance(key, tuple))
        fields = (key,) if is_scalar else tuple(key) if isinstance(key, (tuple, list)) else (key,)
        if len(fields) > len(self._types) or (len(fields) < len(self._types) and not is_prefix):
            raise TypeError(f"a key of this table has {len(self._types)} fields, not {len(fields)}")
        for field, kind in zip(fields, self._types, strict=False):
            self._check(field, kind)
        return fields

    @staticmethod
    def _check(field: Any, kind: Any) -> None:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # Booleans are integers for `isinstance`, but sort elsewhere.
        if not isinstance(field, kinds) or (isinstance(field, bool) and bool not in kinds):
            names = " or ".join(one.__name__ for one in kinds)
            raise TypeError(f"a field of the key is {names}, not {type(field).__name__}")

    def encode(self, key: _T) -> bytes:
        """Returns the bytes of a key."""
        return _tuple.pack(self._fields(key, is_prefix=False))

    def decode(self, data: bytes) -> _T:
        """Returns the key of bytes."""
        fields = _tuple.unpack(data)
        if len(fields) != len(self._types):
            raise Invalid(f"the key has {len(fields)} fields: it is not of this table")
        try:
            for field, kind in zip(fields, self._types, strict=True):
                self._check(field, kind)
        except TypeError as error:
            raise Invalid(f"the key is not of this table: {error}") from None
        return cast(_T, fields if len(fields) > 1 else fields[0])

    def bound(self, fields: Any) -> bytes:
        """Returns where keys that begin with these fields begin."""
        return _tuple.pack(self._fields(fields, is_prefix=True))

    def prefix(self, fields: Any) -> tuple[bytes, bytes]:
        """Returns where keys that begin with these fields begin and end."""
        return _tuple.prefix_range(self._fields(fields, is_prefix=True))


@overload
def keys(a: type[_A], /) -> Keys[_A]: ...
@overload
def keys(a: type[_A], b: type[_B], /) -> Keys[tuple[_A, _B]]: ...
@overload
def keys(a: type[_A], b: type[_B], c: type[_C], /) -> Keys[tuple[_A, _B, _C]]: ...
@overload
def keys(*types: Any) -> Keys[Any]: ...
def keys(*types: Any) -> Keys[Any]:
    """Keys of these fields: `keys(str)` of one, `keys(str, int)` of two.

    A field may have several types, given as a tuple: `keys(str, (int, type(None)))`.
    """
    return Keys(types)
