"""The apps, for the tests of every world."""

import json

from hypothesis import strategies as st

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.compact import SLOT_OF
from tests.envs.case import Case

NAMES = st.sampled_from([f"{app.name}.{name}" for app in APPS for name in app.endpoints])
VALUES = st.one_of(
    st.integers(-2, 90), st.text(max_size=5), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["id", "to", "text", "folder", "page", "token", "app", "question", "card"]), VALUES
)
LINES = st.builds(lambda name, given: json.dumps({"name": name, "arguments": given}), NAMES, ARGUMENTS)
CALLS = st.builds("ok <answer>{}</answer>".format, st.lists(LINES, min_size=1, max_size=4).map("\n".join))
CODE = st.builds(
    lambda name, given: (
        f"ok <answer>x = {name}(**{given!r})\n{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})</answer>"
    ),
    NAMES,
    ARGUMENTS,
)
WORDS = st.builds("{}<answer>{}</answer>".format, st.text(max_size=5), st.sampled_from([*SLOT_OF, "x", ""]))
CASES = {
    "apps-code": Case(lambda: Apps(actions="code", max_turns=8), CODE),
    "apps-json": Case(lambda: Apps(actions="json", quirks=5, max_turns=16), CALLS),
    "apps-compact": Case(lambda: Apps(protocol="compact", max_turns=3), WORDS, "compact"),
}
