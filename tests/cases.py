"""Many small cases as one test: as a test of its own, a case takes pytest 5 ms, and there are thousands."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SLOW = pytest.mark.parametrize("cases", ["quick", pytest.param("slow", marks=pytest.mark.slow)])


def each(
    names: str | tuple[str, ...], cases: Iterable[Any], slow: Iterable[Any] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the test runs with every case in turn, read as `pytest.mark.parametrize` reads them; a failure names its case.

    Slow cases are a second test, in the slow tier. Every case has a `tmp_path` and a `monkeypatch` of its own, and `capsys` holds
    nothing of the case before. It shares all other fixtures: where one of them changes in a case, parametrize.
    """
    places = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    rows = {
        which: [case if len(places) > 1 else (case,) for case in some]
        for which, some in (("quick", cases), ("slow", slow))
    }

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test, updated=())
        def every(**fixtures: Any) -> None:
            for number, row in enumerate(rows[fixtures.pop("cases", "quick")]):
                case = dict(zip(places, row, strict=True))
                with pytest.MonkeyPatch.context() as patch:
                    own = fixtures | ({"monkeypatch": patch} if "monkeypatch" in fixtures else {})
                    if "tmp_path" in fixtures:
                        own["tmp_path"] = fixtures["tmp_path"] / f"case{number}"
                        own["tmp_path"].mkdir()
                    if "capsys" in fixtures:
                        fixtures["capsys"].readouterr()
                    try:
                        test(**own, **case)
                    except BaseException as error:
                        error.add_note(f"case {case}"[:1000])
                        raise

        taken = [one for name, one in inspect.signature(test).parameters.items() if name not in places]
        if rows["slow"]:
            taken.append(inspect.Parameter("cases", inspect.Parameter.KEYWORD_ONLY))
        vars(every).update(__signature__=inspect.Signature(taken), pytestmark=getattr(test, "pytestmark", []))
        return SLOW(every) if rows["slow"] else every

    return decorate
