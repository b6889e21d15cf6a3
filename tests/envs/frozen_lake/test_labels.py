"""Labels that differ by pack: drawn, shown, understood, read back."""

import pytest

from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.code_labels import NAMES, CodeLabels
from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.labels import FIXED, LakeLabels
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS
from cod_lightning.envs.frozen_lake.packs import LakeTask
from cod_lightning.envs.frozen_lake.wording import NaturalLake
from cod_lightning.types import Split, Task
from tests.envs.scripted_life import live, success_by_position

LETTERS = LakeLabels("Move", ("A", "B", "C", "D"), "@", "*", ".", "#", "!", "+", (3, 1, 0, 2))


def _packs(num_packs: int, **parameters):
    env = FrozenLakeObscure(labels="random", **parameters)
    return env, [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(num_packs)]


def test_a_pack_has_one_set_of_labels_and_packs_differ():
    _, packs = _packs(200)
    labels = [{task.spec.labels for task in pack.tasks} for pack in packs]
    assert all(len(one) == 1 for one in labels)
    drawn = set.union(*labels)
    assert len(drawn) > 190
    assert {one.names for one in drawn} == set(NAMES)
    assert len({one.order for one in drawn}) > 20
    for one in drawn:
        assert len({one.player, one.goal, one.ice, one.hole, one.sunk, one.arrived}) == 6


def test_fixed_labels_are_the_papers():
    pack = FrozenLakeObscure().sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    assert pack.tasks[0].spec.labels == FIXED
    assert (FIXED.listed, FIXED.span) == ("Direction 1, Direction 2, Direction 3, Direction 4", "1 to 4")


def test_labels_show_in_rules_map_and_feedback():
    env = FrozenLakeObscure(labels="random", max_turns=8)
    mapping = ("right", "down", "left", "up")
    spec = LakeTask(rows=("SFF", "HFF", "FFG"), mapping=mapping, labels=LETTERS)
    first = env.reset(options={"task": Task(id="0", seed=0, spec=spec)})[0]
    assert "There are four actions: Move A, Move B, Move C, Move D." in env.rules
    assert "@ is you, * the goal, . safe ice, # a hole" in env.rules
    assert env.rules.index("There are four actions") < env.rules.index("A step off") < env.rules.index("Stepping into")
    assert " @ \t . \t . \t\n # \t . \t . \t\n . \t . \t * \t\n" in first
    assert "Move A leads right, from row 0" in env.step("<answer>move_a</answer>")[0]
    assert "Move D kept you at row 0, column 1" in env.step("<answer>Move D!</answer>")[0]
    feedback = env.step("<answer>Direction 2</answer>")[0]
    assert "the answer is not 'Move' and a name" in feedback
    assert "<answer>Move X</answer> with X from A to D" in feedback


@pytest.mark.slow
@pytest.mark.parametrize("feedback", ["effect", "positions"])
def test_the_scripted_policy_plays_as_well_with_any_labels(feedback):
    env, _ = _packs(1, feedback=feedback)
    first, *_, last = success_by_position(env, Reference.SCRIPTED, "natural", num_packs=60)
    assert first < 0.8
    assert last > 0.9


def test_every_policy_answers_in_form_with_any_labels():
    env, packs = _packs(40)
    for pack in packs:
        labels = pack.tasks[0].spec.labels
        for player in (
            *(beside(env, Players).reference(kind, pack) for kind in Reference),
            beside(env, Players).demonstrator(pack),
        ):
            lives = live(env, pack, player, "natural")
            assert all(labels.code_of(m.content)[0] for lived in lives for m in lived.messages[2::2])
            assert all(f"- {labels.label(2)}" in lived.note for lived in lives)


@pytest.mark.parametrize("names", NAMES)
def test_an_answer_with_any_names_is_understood_and_others_are_not(names):
    labels = CodeLabels("Key", names)
    for code in (1, 2, 3, 4):
        assert labels.code_of(f"well <answer> {labels.label(code)} </answer>") == (code, "")
        assert labels.code_of(f"<answer>key_{names[code - 1]} then</answer>") == (code, "")
    for wrong in ("Key", "Key 9", "Key AB", "Lever 1", "", "Key\u00e9 A"):
        code, complaint = labels.code_of(f"<answer>{wrong}</answer>")
        assert code == 0
        assert complaint


@pytest.mark.parametrize("names", NAMES)
def test_facts_with_any_names_read_back(names):
    table = FactTable("Signal", DIRECTIONS, compact=False, names=names)
    facts = {1: "up", 3: "left"}
    assert table.parse(table.write(facts)) == facts
    plain = FactTable("Signal", DIRECTIONS, compact=False)
    if names == NAMES[0]:
        assert table.write(facts) == plain.write(facts)
    observation = f"Signal {names[1]} took you, from row 0, column 0 to row 1, column 0."
    assert NaturalLake(LakeLabels("Signal", names)).facts.parse(observation) == {2: "down"}
