"""Recorded dialogues with worlds, in `<folder>/dialogues.txt`: what is seen, answered and paid, word for word.

    # what it is about
    @ CLASS {its parameters} {fields of the task}; alone, @ stands for the line of the dialogue before
      what is seen
    > an answer, put between the tags
    ! a response as it is
    & {fields of another task of the same pack}
      what is seen
      (reward, status, solved or not)

`PYTHONPATH=. python tests/envs/test_dialogues.py` records them anew; what it changes is to be read.
"""

from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.types import Task
from tests.cases import each

Dialogue = tuple[str, str, str, list[str]]
"""Its title, the world's folder, the line that begins with @, and those after it."""


def read(path: Path) -> Iterator[Dialogue]:
    """The dialogues of a file."""
    title, found = "", list[Dialogue]()
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            title = line.removeprefix("# ")
        elif line.startswith("@"):
            found.append((title, path.parent.name, found[-1][2] if line == "@" else line, []))
            yield found[-1]
        elif line:
            found[-1][3].append(line)


def typed(value: Any, kind: Any) -> Any:
    """A value of YAML as that type has it."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: typed(one, hints[name]) for name, one in value.items()})  # type: ignore[operator]
    if isinstance(value, list):
        kinds = get_args(kind)
        return tuple(typed(one, kinds[0] if kinds else Any) for one in value)
    return value


def task(env: TaskWorld[Any], fields: dict[str, Any]) -> Task:
    kind = env.task_type[0] if isinstance(env.task_type, tuple) else env.task_type
    return Task(id="0", seed=0, spec=typed(fields, kind))


def played(folder: str, begins: str, lines: list[str]) -> Iterator[str]:
    """The lines of the dialogue with what the world says in place of what it should."""
    name, _, settings = begins.removeprefix("@ ").partition(" ")
    parameters, fields = yaml.safe_load(f"[{settings.replace('} {', '}, {')}]")
    env = getattr(import_module(f"cod_lightning.envs.{folder}"), name)(**parameters)
    yield from shown(env.reset(options={"task": task(env, fields)})[0])
    for line in lines:
        mark, answer = line[:2], line[2:]
        if mark == "& ":
            yield line
            yield from shown(env.reset(options={"task": task(env, yaml.safe_load(answer))})[0])
        elif mark != "  ":
            yield line
            seen, reward, terminated, truncated, _ = env.step(f"<answer>{answer}</answer>" if mark == "> " else answer)
            yield from shown(seen)
            if terminated or truncated:
                yield f"  ({reward:.6g}, {env.status}, {'solved' if env.success else 'not solved'})"


def shown(text: str) -> list[str]:
    return [f"  {line}".rstrip() or "  " for line in text.replace("\t", " ").splitlines()]


FILES = sorted(Path(__file__).parent.glob("*/dialogues.txt"))


@each("dialogue", [one for path in FILES for one in read(path)])
def test_a_world_says_and_pays_what_was_recorded(dialogue):
    _, folder, begins, lines = dialogue
    assert list(played(folder, begins, lines)) == lines


if __name__ == "__main__":
    for path in FILES:
        again, begins = list[str](), ""
        for block in path.read_text().split("\n\n"):
            title, *rest = block.strip("\n").splitlines()
            starts = [n for n, line in enumerate(rest) if line.startswith("@")]
            again += ["", title]
            for start, end in zip(starts, [*starts[1:], len(rest)], strict=True):
                begins = begins if rest[start] == "@" else rest[start]
                again += [rest[start], *played(path.parent.name, begins, rest[start + 1 : end])]
        path.write_text("\n".join([*again[1:], ""]))
