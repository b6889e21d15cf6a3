"""The terminal, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.terminal import Terminal
from cod_lightning.envs.terminal.shell import ALIASES, COMMANDS
from tests.envs.case import Case

SOME = r"""&& ; ~ / .. * -r -rf -p a b.txt /var/www ' " $HOME %CD% ops@192.168.1.20 192.168.1.20:/tmp/ [a-z]* ~/docs C:\Users 755
x.tar.gz x.zip -C -czf -d \ ${PWD} -J bastion"""
WORDS = st.sampled_from((*COMMANDS, *ALIASES, *SOME.split()))
LINES = st.builds("ok <answer>{}</answer>".format, st.lists(WORDS, min_size=1, max_size=12).map(" ".join))
CASES = {
    "terminal-natural": Case(Terminal, LINES),
    "terminal-hard": Case(lambda: Terminal(quirks=3, max_turns=5, length_penalty=0.1), LINES),
}
