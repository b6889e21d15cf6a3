"""The apps, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.tool_calls import STYLES, ToolCall
from tests.envs.case import Case

NAMES = st.sampled_from([f"{app.name}.{name}" for app in APPS for name in app.endpoints])
VALUES = st.one_of(
    st.integers(-2, 90), st.text(max_size=5), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["id", "to", "text", "folder", "page", "token", "app", "question", "card"]), VALUES
)
CALLS = st.lists(st.builds(ToolCall, NAMES, ARGUMENTS), min_size=1, max_size=4)
CODE = st.builds(
    lambda name, given: (
        f"ok <answer>x = {name}({', '.join(f'{k}={v!r}' for k, v in given.items())})\n{name}(**x)</answer>"
    ),
    NAMES,
    ARGUMENTS,
)
CASES = {
    "apps-code": Case(lambda: Apps(actions="code", max_turns=8), CODE),
    "apps-qwen": Case(
        lambda: Apps(actions="qwen", quirks=5, split_by=("facts", "template")), CALLS.map(STYLES["qwen"].spelled)
    ),
}
