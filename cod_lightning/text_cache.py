"""Results kept for texts: found as fast as by `lru_cache`, and bounded by bytes, since texts may be of any length."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_OF_AN_ITEM = 36
"""Bytes of an integer beyond the smallest and its place in a tuple."""
_OF_AN_ENTRY = 500
"""Of the containers of arguments and result, and their place in the cache."""


def text_cache(function: Callable[Arguments, Result], most_bytes: int = 2**26) -> Callable[Arguments, Result]:
    """The function of texts, or of tuples of ids, with its results kept until they take `most_bytes`; then it begins anew.

    What alone would take a tenth of that is worked out again each time. Arguments go by position.
    """
    kept = 0

    @cache
    def remembered(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        nonlocal kept
        result = function(*arguments, **named)
        kept += sum(map(_size, arguments)) + _size(result) + _OF_AN_ENTRY
        return result

    @wraps(function)
    def looked_up(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        nonlocal kept
        if _size(arguments[0]) > most_bytes // 10:
            return function(*arguments, **named)
        result = remembered(*arguments, **named)
        if kept > most_bytes:
            kept = 0
            remembered.cache_clear()
        return result

    return looked_up


def _size(one: object) -> int:
    """About as many bytes as a text, or the numbers of a tuple, take."""
    if isinstance(one, str):
        return len(one) * (1 if one.isascii() else 4)
    return len(one) * _OF_AN_ITEM if isinstance(one, tuple) else 0
