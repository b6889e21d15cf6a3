"""Results kept for texts: found as fast as by `lru_cache`, and bounded by bytes, since texts may be of any length."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

Cached = TypeVar("Cached", bound=Callable[..., Any])
_OF_AN_ITEM = 36
"""Bytes of an integer beyond the smallest and its place in a tuple."""
_OF_AN_ENTRY = 500
"""Of the containers of arguments and result, and their place in the cache."""


def text_cache(function: Cached, most_bytes: int = 2**26) -> Cached:
    """The function of texts, or of tuples of ids, with its results kept until they take `most_bytes`; then it begins anew.

    For a first argument that might take a tenth of that alone it is called each time. Arguments go by position.
    """
    kept, longest = 0, most_bytes // 10 // _OF_AN_ITEM

    @cache
    def remembered(*arguments: Any) -> Any:
        nonlocal kept
        result = function(*arguments)
        kept += sum(map(_size, arguments)) + _size(result) + _OF_AN_ENTRY
        return result

    @wraps(function)
    def looked_up(*arguments: Any) -> Any:
        nonlocal kept
        if len(arguments[0]) > longest:
            return function(*arguments)
        result = remembered(*arguments)
        if kept > most_bytes:
            kept = 0
            remembered.cache_clear()
        return result

    return looked_up  # pyright: ignore[reportReturnType]


def _size(one: object) -> int:
    """About as many bytes as a text, or the numbers of a tuple, take."""
    if isinstance(one, str):
        return len(one) * (1 if one.isascii() else 4)
    return len(one) * _OF_AN_ITEM if isinstance(one, tuple) else 0
