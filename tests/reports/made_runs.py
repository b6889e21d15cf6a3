"""Folders as runs leave them, made by hand for the report's tests."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from msgspec import structs

from cod_lightning.rollout import transcript
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest, dump
from cod_lightning.types import Episode, Group, Lifecycle
from tests.records import group, turn


def write_run(folder: Path, groups: Sequence[Group], *, group_size: int = 2, logprobs: bool = True) -> Path:
    """A finished run: config, metrics, evaluation, training lifecycles and what updates made of them."""
    write_config(folder, group_size=group_size)
    write_metrics(folder)
    write_evaluation(folder)
    transcript.write(folder / "lifecycles" / "train.jsonl", groups, step=4)
    if logprobs:
        write_logprobs(folder, groups)
    return folder


def write_logprobs(folder: Path, groups: Sequence[Group], *, updates: int = 1, skipped: Sequence[int] = ()) -> None:
    """What an update gave the tokens of all episodes but those at `skipped`: 0.1 more for the first token of each, and to sibling k
    the advantage 0.5 - k."""
    lines = []
    for one in groups:
        for life in one.lifecycles:
            for e, episode in enumerate(life.episodes):
                found = [logprob for made in episode.turns for logprob in made.behaviour_logprobs]
                if e in skipped or not found:
                    continue
                record = PolicyLogprobs(
                    step=4,
                    pack=one.pack.id,
                    sibling=life.sibling,
                    episode=e,
                    updates=updates,
                    digest=action_digest(episode),
                    advantage=0.5 - life.sibling,
                    logprobs=[found[0] + 0.1, *found[1:]],
                )
                lines.append(dump(record) + "\n")
    (folder / "lifecycles" / "train_logprobs.jsonl").write_text("".join(lines))


def write_config(folder: Path, *, group_size: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"model": {"lr": 0.1}, "data": {"group_size": group_size}}))


def write_metrics(folder: Path, steps: Sequence[int] = range(6)) -> None:
    rows = ["step,epoch,train/reward/position_0,train/reward/position_1,train/clip_fraction,time/rollout_s,mine"]
    rows += [f"{step},0,0.25,{0.25 + step / 20},,1.5,{step}" for step in steps]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")


def write_evaluation(folder: Path) -> None:
    def positions(*shares: float) -> list[dict[str, object]]:
        return [
            {"reward": s, "reward_ci95": [s - 0.1, s + 0.1], "success": s, "success_ci95": [s - 0.1, s + 0.1], "n": 50}
            for s in shares
        ]

    def figures(*means: float) -> list[dict[str, object]]:
        return [{"mean": mean, "ci95": [mean - 0.1, mean + 0.1], "n": 50} for mean in means]

    (drop,), (regained,) = figures(-0.5), figures(0.25)
    recovery = {
        "offsets": [-1, 0, 1],
        "rows": {"blanked_context": figures(0.4, 0.4, 0.4), "trained": figures(0.8, 0.3, 0.55)},
        "drop": drop,
        "regained": regained,
    }
    suite = {
        "env": "words",
        "packs": 50,
        "pack_size": 2,
        "temperature": 1.0,
        "positions": positions(0.4, 0.8),
        "controls": {
            "warm_start": positions(0.4, 0.5),
            "blanked_context": positions(0.4, 0.4),
            "warm_start_t0.3": positions(0.4, 0.6),
        },
        "cod_gain": 0.4,
        "paired": {
            "gain_ci95": [0.3, 0.5],
            "blanked_max_deviation": 0.0,
            "trained_minus_best_warm_start": {"best_temperature": 0.3, "mean_difference": 0.1, "ci95": [0.05, 0.15]},
        },
        "figures": {
            "area": {},
            "differences": {},
            "forward_transfer": None,
            "regret": {"mean": figures(0.3)[0], "by_position": figures(0.5, 0.1)},
            "recovery": recovery,
        },
    }
    (folder / "evaluation.json").write_text(json.dumps({"suites": {"held_out": suite}}))


def with_episodes(made: Group, change: Callable[[Episode], Episode]) -> Group:
    """The group with every episode changed so."""
    lives = (structs.replace(life, episodes=tuple(map(change, life.episodes))) for life in made.lifecycles)
    return structs.replace(made, lifecycles=tuple(lives))


def saying(made: Group, text: str) -> Group:
    """The group with this text wherever a policy or a world may put one."""

    def episode(one: Episode) -> Episode:
        turns = tuple(structs.replace(t, observation=text, response=text) for t in one.turns)
        return structs.replace(one, turns=turns, context_before=text, context_after=f"{text} again", feedback=text)

    return with_episodes(made, episode)


def varied_groups(num_groups: int, siblings: int, words: int, seed: int = 0) -> list[Group]:
    """Groups of four tasks in which every text is another, with a log-prob for each of its words and the stop token."""
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("abcdefghijklmnoprstu", k=rng.randint(2, 9))) for _ in range(3000)]

    def episode(one: Episode, context: str) -> Episode:
        logprobs = [-rng.expovariate(2) for _ in range(words + 1)]
        turns = (turn(text(), logprobs), structs.replace(turn(text(), logprobs), observation=text()))
        return structs.replace(one, turns=turns, context_before=context, context_after=context)

    def text() -> str:
        return " ".join(rng.choices(vocabulary, k=words))

    groups = []
    for index in range(num_groups):
        rows = [[rng.random() < 0.4 + 0.1 * n for n in range(4)] for _ in range(siblings)]
        made = group(f"words/train/{index}", rows)
        lives: list[Lifecycle] = []
        for life in made.lifecycles:
            contexts = [text() for _ in life.episodes]
            lives.append(structs.replace(life, episodes=tuple(map(episode, life.episodes, contexts))))
        groups.append(structs.replace(made, lifecycles=tuple(lives)))
    return groups
