"""Every figure against a loop written from its definition, with missing rewards and controls that played fewer packs."""

import math

import numpy as np
import pytest

from cod_lightning.evaluation.figures import figures
from cod_lightning.evaluation.intervals import bootstrap
from cod_lightning.evaluation.outcomes import Outcomes
from tests.cases import each

NUM_PACKS, NUM_TASKS = 60, 4


def outcomes(rate: float, seed: int, num_packs: int = NUM_PACKS, missing: float = 0.05) -> Outcomes:
    rng = np.random.default_rng(seed)
    success = (rng.random((num_packs, NUM_TASKS)) < rate).astype(float)
    rewards = success * rng.random((num_packs, NUM_TASKS))
    gone = rng.random((num_packs, NUM_TASKS)) < missing
    success[gone] = rewards[gone] = np.nan
    order = rng.permutation(num_packs)  # rows come in any order; ids tell
    ids = tuple(f"pack {i}" for i in order)
    return Outcomes(rewards=rewards, success=success, pack_ids=ids)


TRAINED = outcomes(0.7, 0)
CONTROLS = {"blanked_context": outcomes(0.4, 1), "no_context": outcomes(0.5, 2), "oracle": outcomes(0.95, 3, 25)}
FOUND = figures(TRAINED, CONTROLS, own_reward=True)


def by_pack(one: Outcomes, quantity: str) -> dict[str, list[float]]:
    return dict(zip(one.pack_ids, getattr(one, quantity).tolist(), strict=True))


def mean_over_packs(values: list[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    return sum(present) / len(present)


def difference(quantity: str, control: str) -> list[float]:
    """[N] trained minus control: at each position the mean over the packs where both have a value."""
    own, theirs = by_pack(TRAINED, quantity), by_pack(CONTROLS[control], quantity)
    found = []
    for n in range(NUM_TASKS):
        pairs = [own[pack][n] - theirs[pack][n] for pack in own if pack in theirs]
        found.append(mean_over_packs(pairs))
    return found


@each("quantity", ["success", "reward"])
@each("control", CONTROLS)
def test_a_paired_difference_is_the_mean_over_positions_of_the_differences_within_packs(control, quantity) -> None:
    by_position = difference({"reward": "rewards"}.get(quantity, quantity), control)
    assert FOUND["differences"][control][quantity]["mean"] == pytest.approx(sum(by_position) / NUM_TASKS)
    if quantity == "success":
        shown = [one["mean"] for one in FOUND["differences"][control]["by_position"]]
        assert shown == pytest.approx(by_position)
        assert FOUND["differences"][control]["gain"]["mean"] == pytest.approx(by_position[-1] - by_position[0])


@each("quantity", ["success", "reward"])
@each("name", ["trained", *CONTROLS])
def test_the_area_is_the_mean_over_positions(name: str, quantity: str) -> None:
    one = {"trained": TRAINED, **CONTROLS}[name]
    values = one.success if quantity == "success" else one.rewards
    means = [mean_over_packs([values[p, n] for p in range(len(values))]) for n in range(NUM_TASKS)]
    assert FOUND["area"][name][quantity]["mean"] == pytest.approx(sum(means) / NUM_TASKS)


@each("quantity", ["success", "reward"])
@each(
    ("control", "played"),
    [("no_context", CONTROLS), ("blanked_context", {"blanked_context": CONTROLS["blanked_context"]})],
)
def test_forward_transfer_leaves_position_0_out_and_prefers_the_control_that_asks_nobody(
    control, played, quantity
) -> None:
    transfer = figures(TRAINED, played)["forward_transfer"]
    assert transfer is not None
    assert transfer["control"] == control
    later = difference({"reward": "rewards"}.get(quantity, quantity), control)[1:]
    assert transfer[quantity]["mean"] == pytest.approx(sum(later) / len(later))


def test_regret_is_the_oracle_s_reward_minus_the_trained_policy_s_on_the_oracle_s_packs() -> None:
    regret = FOUND["regret"]
    assert regret is not None
    expected = [-value for value in difference("rewards", "oracle")]
    assert [one["mean"] for one in regret["by_position"]] == pytest.approx(expected)
    assert regret["mean"]["mean"] == pytest.approx(sum(expected) / NUM_TASKS)
    low, high = regret["mean"]["ci95"] or (0, 0)
    assert low < sum(expected) / NUM_TASKS < high
    assert regret["by_position"][0]["n"] <= 25


def test_what_was_not_played_is_null_and_no_regret_counts_rewards_that_the_oracle_has_not() -> None:
    bare = figures(TRAINED, {})
    assert (bare["forward_transfer"], bare["regret"], bare["recovery"]) == (None, None, None)
    assert bare["differences"] == {}
    assert list(bare["area"]) == ["trained"]
    assert figures(TRAINED, CONTROLS)["regret"] is None


def test_intervals_of_many_figures_are_those_of_one() -> None:
    full = outcomes(0.7, 5, missing=0), outcomes(0.4, 6, missing=0)
    found = figures(full[0], {"blanked_context": full[1]}, seed=3)
    mean = np.full((1, NUM_TASKS), 1 / NUM_TASKS)
    (one,) = bootstrap(full[0].success, mean, seed=3)
    assert found["area"]["trained"]["success"]["ci95"] == pytest.approx([one.low, one.high])
    (paired,) = bootstrap(full[0].success - full[1].rows(full[0].pack_ids).success, mean, seed=3)
    assert found["differences"]["blanked_context"]["success"]["ci95"] == pytest.approx([paired.low, paired.high])


def test_policies_are_paired_by_pack_and_not_by_row() -> None:
    def played(success: list[list[float]], names: str) -> Outcomes:
        return Outcomes(rewards=np.array(success), success=np.array(success), pack_ids=tuple(names))

    own, theirs = played([[1.0, 1.0], [0.0, 0.0]], "ab"), played([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], "bac")
    found = figures(own, {"random": theirs})["differences"]["random"]
    assert (found["success"]["mean"], found["success"]["n"]) == (0.0, 2)
    assert [one["mean"] for one in found["by_position"]] == [0.0, 0.0]


def test_a_control_that_never_got_a_reward_has_no_figures_and_spoils_no_others() -> None:
    nothing = np.full((NUM_PACKS, NUM_TASKS), np.nan)
    broken = Outcomes(rewards=nothing, success=nothing, pack_ids=TRAINED.pack_ids)
    found = figures(TRAINED, {"blanked_context": broken})
    assert found["differences"]["blanked_context"]["success"] == {"mean": None, "ci95": None, "n": 0}
    assert found["area"]["trained"] == FOUND["area"]["trained"] or found["area"]["trained"]["success"]["mean"]


def test_what_training_adds_is_the_trained_transfer_less_the_warm_start_s_pack_by_pack() -> None:
    rng = np.random.default_rng(3)
    ids = tuple(map(str, range(40)))
    own, blanked, warm, its = (
        Outcomes(rewards=values, success=values, pack_ids=ids, rules=tuple(str(n % 5) for n in range(40)))
        for values in (rng.random((4, 40, 3)) < np.array([0.9, 0.4, 0.7, 0.4])[:, None, None]).astype(float)
    )
    short = its.rows(ids[:30])
    controls = {"blanked_context": blanked, "warm_start_t0.3": warm, "warm_start_blanked": short, "warm_start": own}
    found = figures(own, controls, best_warm_start=("warm_start_t0.3", 0.3))["training_adds"]
    assert found is not None
    pairs = [
        [own.success[p, n] - blanked.success[p, n] - warm.success[p, n] + its.success[p, n] for n in (1, 2)]
        for p in range(30)
    ]
    assert found["difference"]["mean"] == pytest.approx(np.mean(pairs))
    assert found["difference"]["n"] == 30
    assert found["trained"]["n"] == 40
    assert found["trained"]["mean"] == pytest.approx((own.success - blanked.success)[:, 1:].mean())
    alone = figures(own, {"warm_start_t0.3": warm}, best_warm_start=("warm_start_t0.3", 0.3))
    assert alone["training_adds"] is None


def test_a_pack_is_whole_where_all_its_tasks_are_solved_and_unknown_where_one_is_missing() -> None:
    success = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, np.nan], [1.0, 1.0], [0.0, 0.0]])
    played = Outcomes(rewards=success, success=success, pack_ids=tuple("abcde"))
    found = figures(played, {})["whole_packs"]["trained"]
    assert (found["mean"], found["n"]) == (0.5, 4)
