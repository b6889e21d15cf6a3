"""Hidden rules of the shipped worlds in training and test packs, and the best player without memory in both.

    PYTHONPATH=. python examples/studies/splits.py

Writes docs/results/splits.md. About a minute.
"""

from pathlib import Path

from cod_lightning.commands.worlds import parse_world
from cod_lightning.markdown import table
from cod_lightning.types import Split
from tests.envs.hidden_rules import TRIES, commonest, memoryless_gap, num_rules
from tests.own_worlds import own_worlds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "splits.md"
MANY = 200
"""Rules in tests from which on a world is not listed."""
ABOUT = f"""# What splits hide

**Could a policy that remembers nothing learn from training what pays in tests?** Not in the shipped worlds.

    PYTHONPATH=. python examples/studies/splits.py    # writes this page; tests/envs/test_hidden_rules.py holds every world to it

Different hidden rules in 512 training and 512 test packs, names aside, and the share of the test packs that have the commonest one.
*No memory*: the player that solves most tasks of 1,024 training packs by what each task itself shows, on 1,024 further training
packs and on 1,024 test packs. Were it better in training, reward without contexts would teach what is wrong in tests. Worlds with
{MANY} rules or more in tests, and no such player, are left out."""
LIMITS = """Results that say so were measured when alchemy, apps and terminal in compact words had 31, 8 and 8 rules in tests, where
what paid most in training paid less. Not counted: TextWorld, reasoning-gym, TextArena, data of your own; the best player without
memory where actions are moves or sentences."""


def main() -> None:
    lines = []
    for name in own_worlds():
        if name == "terminal_reference":
            continue
        world = parse_world("check", "", ["--env", name]).env
        train, test = (num_rules(world, split) for split in (Split.TRAIN, Split.TEST))
        played = [f"{share:.3f}" for share in memoryless_gap(world, name, 1024)] if name in TRIES else ["", ""]
        if test < MANY or name in TRIES:
            lines.append([f"`{name}`", str(train), str(test), f"{commonest(world, Split.TEST):.3f}", *played])
    head = ["world", "rules in training", "in tests", "commonest", "no memory, training", "tests"]
    PAGE.write_text("\n\n".join([ABOUT, table(head, lines), LIMITS]) + "\n")


if __name__ == "__main__":
    main()
