"""Many small cases as one test: as a test of its own, a case takes pytest 5 ms, and there are thousands."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the test runs with every case in turn, read as `pytest.mark.parametrize` reads them; a failure names its case.

    Fixtures are shared by all cases: where a case needs a folder or a patch of its own, parametrize.
    """
    places = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    rows = [case if len(places) > 1 else (case,) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test, updated=())
        def every(**fixtures: Any) -> None:
            for row in rows:
                case = dict(zip(places, row, strict=True))
                try:
                    test(**fixtures, **case)
                except BaseException as error:
                    error.add_note(f"case {case}")
                    raise

        rest = [one for name, one in inspect.signature(test).parameters.items() if name not in places]
        vars(every).update(__signature__=inspect.Signature(rest), pytestmark=getattr(test, "pytestmark", []))
        return every

    return decorate
