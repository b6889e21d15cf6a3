"""JSON that may stand in an HTML script element, whatever the texts in it are."""

import json
import re

_ESCAPED = str.maketrans({one: f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029\x7f"})
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def embedded(data: object) -> str:
    """JSON without `<`, `>`, `&`, U+2028, U+2029 and lone surrogates: nothing in it can end the element.

    >>> embedded({"said": "</script>"})
    '{"said":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPED)
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
