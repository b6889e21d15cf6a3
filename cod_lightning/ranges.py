"""Numbers within a range, as types of a config's values: jsonargparse refuses any other by its key, value and range."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Count = Natural = Several = Seed = int
    Positive = AtLeastOne = NonNegative = NotPositive = Share = PositiveShare = InnerShare = float
else:
    from jsonargparse.typing import register_type

    def _within(name: str, kind: type, expected: str, holds: Any) -> type:
        """A type whose values are plain numbers of that kind."""

        def read(value: Any) -> Any:
            number = float(value)
            if isinstance(value, bool) or not holds(number) or (kind is int and not number.is_integer()):
                raise ValueError(f"expected a number {expected}, not {value}")
            return kind(number)

        def fits(value: Any, _: type) -> bool:
            return type(value) is kind and holds(value)

        made = type(name, (kind,), {"__doc__": f"{kind.__name__}, {expected}.", "__module__": __name__})
        register_type(made, serializer=kind, deserializer=read, type_check=fits, fail_already_registered=False)
        return made

    Count = _within("Count", int, "at least 1", lambda v: v >= 1)
    Natural = _within("Natural", int, "at least 0", lambda v: v >= 0)
    Several = _within("Several", int, "at least 2", lambda v: v >= 2)
    Seed = _within("Seed", int, "from 0 to 4294967295", lambda v: 0 <= v < 2**32)
    # with a comma, since jsonargparse cuts the value between two spaces, " 0 ", out of its message
    Positive = _within("Positive", float, "above 0, and finite", lambda v: 0 < v < math.inf)
    AtLeastOne = _within("AtLeastOne", float, "at least 1, and finite", lambda v: 1 <= v < math.inf)
    NonNegative = _within("NonNegative", float, "at least 0 and finite", lambda v: 0 <= v < math.inf)
    NotPositive = _within("NotPositive", float, "at most 0 and finite", lambda v: -math.inf < v <= 0)
    Share = _within("Share", float, "in [0, 1]", lambda v: 0 <= v <= 1)
    PositiveShare = _within("PositiveShare", float, "in (0, 1]", lambda v: 0 < v <= 1)
    InnerShare = _within("InnerShare", float, "in (0, 1)", lambda v: 0 < v < 1)
