"""Worlds of ways, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.ways import AppsWays, TerminalWays
from tests.envs.case import Case


def _said(world):
    words = [way for ways in world.wording.known.ways.values() for way in ways]
    return st.builds("{}<answer>{}</answer>".format, st.text(max_size=5), st.sampled_from([*words, "x", ""]))


CASES = {
    "apps-compact": Case(AppsWays, _said(AppsWays), "compact"),
    "terminal-compact": Case(TerminalWays, _said(TerminalWays), "compact"),
}
