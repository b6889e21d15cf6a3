"""Results for texts as fast as an item of a dict: those that were kept, bounded by bytes since texts may be of any length, and the
ids of words."""

from collections.abc import Callable
from typing import Any, TypeVar

Cached = TypeVar("Cached", bound=Callable[[Any], Any])
_OF_AN_ITEM = 36
"""Bytes of an integer beyond the smallest and its place in a tuple."""
_OF_AN_ENTRY = 500
"""Of the containers of argument and result, and their place in the cache."""


def text_cache(function: Cached, most_bytes: int = 2**26) -> Cached:
    """The function of a text, or of a tuple of ids, with its results kept until they take `most_bytes`; then it begins anew.

    For an argument that might take a tenth of that alone it is called each time. What it raises is not kept.
    """
    return _Kept(function, most_bytes).__getitem__  # pyright: ignore[reportReturnType]


class _Kept(dict[Any, Any]):
    """Results by argument; one that is not there is worked out."""

    def __init__(self, function: Callable[[Any], Any], most_bytes: int) -> None:
        self.function, self.most_bytes = function, most_bytes
        self.longest, self.num_bytes = most_bytes // 10 // _OF_AN_ITEM, 0

    def __missing__(self, argument: Any) -> Any:
        result = self.function(argument)
        if len(argument) <= self.longest:
            self.num_bytes += _size(argument) + _size(result) + _OF_AN_ENTRY
            if self.num_bytes > self.most_bytes:
                self.clear()
                self.num_bytes = 0
            self[argument] = result
        return result


def _size(one: object) -> int:
    """About as many bytes as a text, or the numbers of a tuple, take."""
    if isinstance(one, str):
        return len(one) * (1 if one.isascii() else 4)
    return len(one) * _OF_AN_ITEM if isinstance(one, tuple) else 0


def word_ids(backend: Any) -> dict[str, int]:
    """The id of every word, of a backend that splits at white space, looks words up, and does nothing else; of others nothing.

    Words of a text with single spaces between them have these ids, if all of them are here.
    """
    from tokenizers.models import WordLevel  # here, since worlds keep results, too, and need no tokenizer
    from tokenizers.pre_tokenizers import WhitespaceSplit

    if backend is None or not isinstance(backend.model, WordLevel):
        return {}
    splits = isinstance(backend.pre_tokenizer, WhitespaceSplit)
    if not splits or backend.normalizer or backend.truncation or backend.padding:
        return {}
    known: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    added = [token.content for token in backend.get_added_tokens_decoder().values()]  # cut out even from within words
    return {word: i for word, i in known.items() if not any(token in word for token in added if token != word)}
