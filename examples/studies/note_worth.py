"""What a lifecycle's notes about levers or doors hold, whether tasks read them, and what a note is worth, by policy version.

    PYTHONPATH=. python examples/studies/note_worth.py RUN/lifecycles/train.jsonl

In sentences. *Noted*: facts seen so far that the context has right. *Read*: first answers with the lever (or key) that is right by
the context, of the tasks where it names one (a guess: one of them). *Again*, of levers: first answers with one that gives another
colour by the context, of the tasks where it names only such (in brackets the share of a guess). *Worth*: by how much the mean
reward of later tasks rises with a right note more, by least squares within siblings, with a 95 % interval over packs and positions
(bootstrap).
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from cod_lightning.envs.doors.wording import NaturalDoors
from cod_lightning.rollout.transcript import load_line
from cod_lightning.types import EpisodeKind, Lifecycle, Pack

_DRAWS = 2_000


class Counts:
    """Of one policy version."""

    def __init__(self) -> None:
        self.seen = self.noted = self.named = self.read = self.others = self.again = 0
        self.guessed = 0.0
        """First pulls at such a lever that guesses among all would make."""
        self.products: list[tuple[float, float]] = []
        """Of each group of siblings at a position: sums of (notes x reward) and (notes x notes), both about their means."""

    @property
    def shares(self) -> dict[str, float]:
        """Facts noted of those seen, first pulls at named levers, and at others (beside it what guesses would make of these)."""
        named, others = max(1, self.named), max(1, self.others)
        shares = {"noted": self.noted / max(1, self.seen), "read": self.read / named}
        return shares | {"again": self.again / others, "guessed": self.guessed / others}


def colour_of(lever: str, text: str) -> str | None:
    """What the text says that the lever gives."""
    found = re.search(rf"\b{re.escape(lever)} gives (\w+)", text)
    return found and found[1]


def chooses(answer: str, response: str) -> bool:
    """Whether the response answers with this lever or key, be the answer well-formed or not."""
    return bool(re.search(rf"\b{re.escape(answer)}\b", response.rpartition("<answer>")[2]))


class LeverFacts:
    """Colours by lever, of a pack's tasks."""

    def __init__(self, specs: list[Any]) -> None:
        self.levers: list[str] = specs[0]["labels"]["names"]
        self.wanted: list[str] = [spec["goal"] for spec in specs]

    def facts(self, text: str) -> dict[Any, str]:
        """What the text says."""
        return {lever: colour for lever in self.levers if (colour := colour_of(lever, text))}

    def right(self, facts: dict[Any, str], position: int) -> list[str]:
        """Answers that are right at that position if these facts are."""
        return [lever for lever, colour in facts.items() if colour == self.wanted[position]]

    def others(self, facts: dict[Any, str]) -> list[str]:
        """Levers that give another colour, where `right` names none."""
        return list(facts)


class DoorFacts(LeverFacts):
    """Keys by door."""

    def __init__(self, specs: list[Any]) -> None:
        self.levers = []
        self.doors: list[int] = [spec["door"] for spec in specs]
        self.wording = NaturalDoors(len(specs[0]["keys"]))

    def facts(self, text: str) -> dict[Any, str]:
        return self.wording.parse(text)

    def right(self, facts: dict[Any, str], position: int) -> list[str]:
        door = self.doors[position]
        return [f"Key {facts[door]}"] if door in facts else []

    def others(self, facts: dict[Any, str]) -> list[str]:
        return []  # a door is opened once


def look(pack: Pack, lives: list[Lifecycle], by_version: dict[int, Counts]) -> None:
    """Add a group's lifecycles."""
    specs: list[Any] = [task.spec for task in pack.tasks]
    of = DoorFacts(specs) if "door" in specs[0] else LeverFacts(specs)
    notes: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for life in lives:
        facts: dict[Any, str] = {}
        for at, episode in enumerate(life.episodes):
            if not episode.turns:
                continue
            version = episode.turns[0].policy_version
            counts = by_version[version]
            if episode.kind is EpisodeKind.SOLVE:
                noted = of.facts(episode.context_before)
                if named := of.right(noted, episode.position):
                    counts.named += 1
                    counts.read += chooses(named[0], episode.turns[0].response)
                elif others := of.others(noted):
                    counts.others, counts.guessed = counts.others + 1, counts.guessed + len(others) / len(of.levers)
                    counts.again += any(chooses(lever, episode.turns[0].response) for lever in others)
                facts |= of.facts(" ".join([episode.feedback, *(turn.observation for turn in episode.turns)]))
            elif episode.kind is EpisodeKind.UPDATE:
                right = len(facts.items() & of.facts(episode.context_after).items())
                counts.seen, counts.noted = counts.seen + len(facts), counts.noted + right
                solves = [one for one in life.episodes[at + 1 :] if one.kind is EpisodeKind.SOLVE]
                if later := [one.reward for one in solves if one.reward is not None]:
                    notes[version, episode.position].append((right, float(np.mean(later))))
    for (version, _), pairs in notes.items():
        x, y = (np.array(values) - np.mean(values) for values in zip(*pairs, strict=True))
        by_version[version].products.append((float(x @ y), float(x @ x)))


def worth(products: list[tuple[float, float]]) -> str:
    """The slope, and its interval."""
    both = np.array(products)
    drawn = both[np.random.default_rng(0).integers(len(both), size=(_DRAWS, len(both)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / np.maximum(drawn[:, 1], 1e-9), (0.025, 0.975))
    return f"{both[:, 0].sum() / max(1e-9, both[:, 1].sum()):+.3f} [{low:.3f}, {high:.3f}]"


def counted(file: Path) -> dict[int, Counts]:
    """Of a file of lifecycles, by policy version."""
    groups: dict[tuple[int, str], tuple[Pack, dict[int, Lifecycle]]] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        played = load_line(line, f"{file}, line {number}")
        _, lives = groups.setdefault((played.step, played.group.pack.id), (played.group.pack, {}))
        lives |= {life.sibling: life for life in played.group.lifecycles}  # the last of what a stopped run played twice
    by_version: dict[int, Counts] = defaultdict(Counts)
    for pack, lives in groups.values():
        look(pack, list(lives.values()), by_version)
    return dict(sorted(by_version.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    by_version = counted(Path(parser.parse_args().file))
    print("version   noted of seen   read of named   again             worth of a right note")
    for version, one in by_version.items():
        shown = "{noted:.2f} of {0.seen:<7}  {read:.2f} of {0.named:<7}  {again:.2f} ({guessed:.2f}) of {0.others:<3}"
        print(f"{version:7}   {shown.format(one, **one.shares)}  {worth(one.products)}")
    print(f"all: {worth([pair for one in by_version.values() for pair in one.products])}")


if __name__ == "__main__":
    main()
