"""A transcript is read back exactly, in whole groups, or its damage is named."""

import dataclasses
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from cod_lightning.errors import DataError
from cod_lightning.rollout.transcript import dump, load, read, write
from cod_lightning.types import (
    Episode,
    EpisodeKind,
    EpisodeStatus,
    Group,
    Lifecycle,
    Pack,
    Split,
    StopReason,
    Task,
    Turn,
)
from tests.cases import each
from tests.records import attempt, group, pack, with_attempts

texts = st.text(max_size=20)
ids = st.lists(st.integers(0, 200_000), max_size=6).map(tuple)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    logprobs = tuple(draw(st.lists(st.floats(max_value=0, allow_nan=False), max_size=6)))
    return Turn(
        new_ids=draw(ids),
        extends=draw(st.booleans()),
        action_ids=tuple(draw(st.integers(0, 200_000)) for _ in logprobs),
        behaviour_logprobs=logprobs,
        stop=draw(st.sampled_from(StopReason)),
        policy_version=draw(st.integers(-1, 10_000)),
        prompt_digest=draw(st.integers(0, 2**32 - 1)),
        observation=draw(texts),
        response=draw(texts),
    )


@st.composite
def episodes(draw: st.DrawFn, index: int, parent: int | None = None) -> Episode:
    status = draw(st.sampled_from(EpisodeStatus))
    missing = status in (EpisodeStatus.FAILED, EpisodeStatus.SKIPPED)
    return Episode(
        kind=EpisodeKind.UPDATE if index % 2 else EpisodeKind.SOLVE,
        position=index // 2,
        status=status,
        turns=tuple(draw(st.lists(turns(), max_size=2))),
        reward=None if missing else draw(st.floats(allow_nan=False, allow_infinity=False)),
        success=None if missing else draw(st.booleans()),
        feedback=draw(texts),
        context_before=draw(texts),
        context_after=draw(texts),
        error=draw(texts),
        repeat=draw(st.booleans()),
        parts=draw(st.dictionaries(texts, st.floats(allow_nan=False), max_size=2)),
        weights=draw(
            st.none() | st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=False)), max_size=2).map(tuple)
        ),
        parent=parent,
        trained=parent is None or draw(st.booleans()),
    )


@st.composite
def groups(draw: st.DrawFn) -> Group:
    num_tasks, pack_id = draw(st.integers(1, 2)), draw(texts)
    tasks = tuple(
        Task(id=draw(texts), seed=draw(st.integers(0, 2**63)), spec=draw(plain), repeat=draw(st.booleans()))
        for _ in range(num_tasks)
    )
    drawn = Pack(id=pack_id, split=draw(st.sampled_from(Split)), world_seed=draw(st.integers()), tasks=tasks)
    lifecycles = tuple(
        Lifecycle(
            pack_id=pack_id,
            sibling=sibling,
            episodes=(
                *(draw(episodes(index)) for index in range(2 * num_tasks - 1)),
                *(draw(episodes(0, 0)) for _ in range(draw(st.integers(0, 2)))),
            ),
        )
        for sibling in range(draw(st.integers(1, 3)))
    )
    return Group(pack=drawn, lifecycles=lifecycles)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(groups(), max_size=3))
def test_what_is_dumped_is_loaded_again_to_the_last_bit(written: list[Group]) -> None:
    lines = [line for step, one in enumerate(written) for line in dump(one, step=step)]
    assert load(lines) == written
    assert not any("\n" in line or not line.isascii() for line in lines)


class Kind(StrEnum):
    ICE = "ice"


@dataclasses.dataclass(frozen=True)
class Tile:
    kind: Kind
    at: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Spec:
    tiles: tuple[Tile, ...]
    seen: frozenset[int]


def test_an_environment_s_own_spec_becomes_a_plain_dict_and_stays_one() -> None:
    task = Task(id="t", seed=1, spec=Spec(tiles=(Tile(Kind.ICE, (0, 1)),), seen=frozenset({3, 1})))
    one = structs.replace(group("p", [(True,)]), pack=dataclasses.replace(pack("p", 1), tasks=(task,)))
    lines = dump(one)
    (loaded,) = load(lines)
    assert loaded.pack.tasks[0].spec == {"tiles": [{"kind": "ice", "at": [0, 1]}], "seen": [1, 3]}
    assert dump(loaded) == lines


def test_the_same_pack_at_two_steps_stays_two_groups() -> None:
    early, late = group("p", [(False, False), (True, False)]), group("p", [(True, True), (True, True)])
    lines = [*dump(early, step=0), *dump(late, step=10)]
    assert load(lines) == [early, late]
    assert load([*dump(early), *dump(late)]) == [early, late]  # siblings begin again at 0
    torn = [dump(early, step=0)[0], dump(late, step=10)[1]]
    assert [[life.sibling for life in one.lifecycles] for one in load(torn)] == [[0], [1]]


def test_what_is_written_behind_a_torn_line_stays_readable(tmp_path: Path) -> None:
    file, early, late = tmp_path / "train.jsonl", group("a", [(True,), (False,)]), group("b", [(True,), (False,)])
    write(file, [early])
    file.write_bytes(file.read_bytes()[:-9])
    write(file, [late])
    write(file, [late], step=1)
    whole, torn, *rest = file.read_text().splitlines()
    assert (load([whole, *rest]), len(rest)) == (
        [structs.replace(early, lifecycles=early.lifecycles[:1]), late, late],
        4,
    )
    with pytest.raises(DataError, match="leaves a torn last line"):
        load([torn])


def test_a_line_is_one_lifecycle_that_a_person_can_read_by_the_names_of_the_fields(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "train.jsonl", [group("p", [(True, False), (True, True)], context="left is up")], step=7)
    records = [json.loads(line) for line in (tmp_path / "deep" / "train.jsonl").read_text().splitlines()]
    heads = [(r["schema"], r["step"], r["pack"]["id"], r["sibling"]) for r in records]
    assert heads == [(4, 7, "p", 0), (4, 7, "p", 1)]
    episode = records[0]["episodes"][2]
    assert (episode["kind"], episode["reward"], episode["context_before"]) == ("solve", 0.0, "left is up")
    made = group("p", [(True, False)], context="left is up")
    beside = with_attempts(made.lifecycles[0], attempt(1, True, trained=False))
    (episode, *_, attempted) = json.loads(dump(structs.replace(made, lifecycles=(beside,)))[0])["episodes"]
    states = {"state_before", "state_after"}
    assert attempted.keys() - states == {*Episode.__struct_fields__} - states
    assert episode.keys() == attempted.keys() - {"parent", "trained"}
    assert (attempted["parent"], attempted["trained"]) == (2, False)
    assert all(one.keys() == {*Turn.__struct_fields__} - {"parts"} for one in episode["turns"])


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    made = group("p", [(True,)])
    (life,) = made.lifecycles
    scored = structs.replace(life.episodes[0], reward=np.float64(0.5), parts={"judge": np.float32(0.5)})
    lines = dump(structs.replace(made, lifecycles=(structs.replace(life, episodes=(scored,)),)))
    assert load(lines)[0].lifecycles[0].episodes[0].parts == {"judge": 0.5}


def test_writing_appends_or_begins_anew(tmp_path: Path) -> None:
    path, one = tmp_path / "a.jsonl", group("p", [(True,)])
    write(path, [one])
    write(path, [one])
    assert len(read(path)) == 2
    write(path, [one], append=False)
    assert read(path) == [one]


@each(
    ("damage", "said"),
    [
        (lambda line: line[:40], "JSONDecodeError"),
        (lambda line: line.replace('"reward"', '"rewrad"', 1), "rewrad"),
        (lambda line: line.replace('"solve"', '"slove"', 1), "slove"),
        (lambda line: line.replace('"schema":4', '"schema":99'), "schema 99"),
        (lambda line: line.replace('"action_ids":[0,1]', '"action_ids":[0]', 1), "differ in length"),
        (lambda line: line.replace('"sibling":0', '"sibling":"x"', 1), "invalid literal for int"),
        (lambda line: line.replace('"id":"q"', '"id":["q"]', 1), "Expected `str`, got `array`"),
        (lambda line: "[" * 100_000, "RecursionError"),
        (lambda line: "[]", "TypeError"),
        (lambda line: "7", "TypeError"),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path: Path, damage: Callable[[str], str], said: str) -> None:
    path = tmp_path / "train.jsonl"
    good, bad = dump(group("p", [(True, True)])), dump(group("q", [(True, True)]))
    path.write_text("\n".join([*good, "", *map(damage, bad)]))
    with pytest.raises(DataError, match=said) as caught:
        read(path)
    assert "train.jsonl, line 3" in str(caught.value)
    with pytest.raises(DataError, match="nowhere"):
        read(tmp_path / "nowhere.jsonl")


def test_a_device_is_no_transcript() -> None:
    with pytest.raises(DataError, match="it is no file"):
        read(Path("/dev/null"))
