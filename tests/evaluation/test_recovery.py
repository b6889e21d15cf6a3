"""Success around a change of the rule, against loops over packs."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from cod_lightning.evaluation.figures import align, figures
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.schema import Recovery
from tests.cases import each

RNG = np.random.default_rng(0)
SUCCESS = (RNG.random((50, 6)) < 0.6).astype(float)
SUCCESS[3, 2] = np.nan
CHANGES = [int(at) for at in RNG.integers(1, 6, 50)]
IDS = tuple(f"pack {i}" for i in range(50))
TRAINED = Outcomes(rewards=SUCCESS, success=SUCCESS, pack_ids=IDS)
FEW = Outcomes(rewards=SUCCESS[:9], success=SUCCESS[:9], pack_ids=IDS[:9])


def recovery(controls: dict[str, Outcomes], changes: Sequence[int | None]) -> Recovery:
    found = figures(TRAINED, controls, tuple(changes))["recovery"]
    assert found is not None
    return found


FOUND = recovery({"scripted": FEW}, CHANGES)


def mean(values: list[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    return sum(present) / len(present)


@each(("name", "num_packs"), [("trained", 50), ("scripted", 9)])
def test_each_offset_is_the_mean_over_the_packs_that_have_a_task_there(name: str, num_packs: int) -> None:
    assert FOUND["offsets"] == [-1, 0, 1, 2, 3, 4]
    for offset, shown in zip(FOUND["offsets"], FOUND["rows"][name], strict=True):
        there = [p for p in range(num_packs) if 0 <= CHANGES[p] + offset < 6]
        values = [SUCCESS[p, CHANGES[p] + offset] for p in there]
        assert shown["n"] == sum(not math.isnan(value) for value in values)
        if shown["n"]:
            assert shown["mean"] == pytest.approx(mean(values))
        else:
            assert shown["mean"] is None


def test_the_drop_and_what_is_regained_are_paired_within_packs() -> None:
    drops = [SUCCESS[p, at] - SUCCESS[p, at - 1] for p, at in enumerate(CHANGES)]
    assert FOUND["drop"]["mean"] == pytest.approx(mean(drops))
    later = [SUCCESS[p, 5] - SUCCESS[p, at] for p, at in enumerate(CHANGES) if at < 5]
    assert FOUND["regained"]["mean"] == pytest.approx(mean(later))
    assert FOUND["regained"]["n"] == len([value for value in later if not math.isnan(value)])


def test_packs_whose_rule_stays_have_no_part_in_it() -> None:
    some = [at if p % 3 else None for p, at in enumerate(CHANGES)]
    found = recovery({"scripted": FEW}, some)
    assert found["offsets"] == FOUND["offsets"]
    for offset, shown in zip(found["offsets"], found["rows"]["trained"], strict=True):
        values = [SUCCESS[p, at + offset] for p, at in enumerate(some) if at is not None and at + offset < 6]
        assert shown["mean"] == pytest.approx(mean(values))
    later = [SUCCESS[p, 5] - SUCCESS[p, at] for p, at in enumerate(some) if at is not None and at < 5]
    assert found["regained"]["mean"] == pytest.approx(mean(later))


def test_a_change_at_one_place_shows_every_later_position() -> None:
    found = recovery({}, [2] * 50)
    assert found["offsets"] == [-1, 0, 1, 2, 3]
    assert [f["mean"] for f in found["rows"]["trained"]] == pytest.approx(
        [mean(SUCCESS[:, n].tolist()) for n in range(1, 6)]
    )


def test_a_change_at_the_last_task_leaves_nothing_to_regain() -> None:
    found = recovery({}, [5] * 50)
    assert found["offsets"] == [-1, 0]
    assert found["regained"] == {"mean": None, "ci95": None, "n": 0}


def test_aligning_shifts_and_invents_nothing() -> None:
    aligned = align(np.arange(12.0).reshape(2, 6), [0, 5], [-1, 0, 1])
    assert np.isnan(aligned[0, 0])
    assert aligned[0, 1:].tolist() == [0, 1]
    assert aligned[1, :2].tolist() == [10, 11]
    assert np.isnan(aligned[1, 2])
