"""Functions whose results a cache keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core import Cache

__all__ = ["ENOVAL", "UNKNOWN", "Constant", "args_to_key", "full_name", "memoize"]


class Constant(tuple[str]):
    """A value that is none of the caller's."""

    def __new__(cls, name: str) -> Constant:
        return tuple.__new__(cls, (name,))

    def __repr__(self) -> str:
        return self[0]


#: No value was given.
ENOVAL = Constant("ENOVAL")
#: A key or value that is not known.
UNKNOWN = Constant("UNKNOWN")


def full_name(function: Any) -> str:
    """Returns the name of a function with its module."""
    return f"{function.__module__}.{function.__qualname__}"


def args_to_key(
    base: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    typed: bool,
    ignore: Iterable[Any],
) -> tuple[Any, ...]:
    """Returns the key of a call."""
    ignored = frozenset(ignore)
    args = tuple(arg for index, arg in enumerate(args) if index not in ignored)
    named = sorted((name, value) for name, value in kwargs.items() if name not in ignored)
    key = (*base, args, tuple(named))
    if typed:
        kinds = [type(arg).__qualname__ for arg in (*args, *(value for _, value in named))]
        key += (tuple(kinds),)
    return key


def memoize(
    cache: Cache, base: tuple[Any, ...], typed: bool, expire: float | None, tag: Any, ignore: Iterable[Any]
) -> Callable[[Callable[..., Any]], Any]:
    """Makes functions return what the cache has for their arguments. An empty `base`: the function's name."""

    def decorate(function: Callable[..., Any]) -> Any:
        name = base or (full_name(function),)

        def key_of(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(name, args, kwargs, typed, ignore)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = key_of(*args, **kwargs)
            result = cache.get(key, ENOVAL, retry=True)
            if result is ENOVAL:
                result = function(*args, **kwargs)
                if expire is None or expire > 0:
                    cache.set(key, result, expire, tag=tag, retry=True)
            return result

        call.__cache_key__ = key_of  # type: ignore[attr-defined]
        return call

    return decorate
