"""What packs, names, references and teachers of every world of hidden rules keep to, world by world in tables."""

import random

import pytest

from cod_lightning.envs import QuotingDials, TeacherDials
from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.learn2ask import Learn2Ask
from cod_lightning.envs.learn2ask.clinic import turns_of
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.terminal import Terminal
from cod_lightning.envs.terminal.compact import canonical
from cod_lightning.types import Message, Role, Split
from tests.envs.alchemy.worlds import COMPACT as COMPACT_ALCHEMY
from tests.envs.alchemy.worlds import HARD as HARD_ALCHEMY
from tests.envs.cases import WORLDS, every_world
from tests.envs.control.cases import COMPACT as COMPACT_CONTROL
from tests.envs.grid.cases import COMPACT as COMPACT_GRID
from tests.envs.scripted_life import success_by_position

HELD_OUT = {
    "LeverTask": lambda specs: [tuple((s.goal, s.colours) for s in specs)],
    "ForbiddenTask": lambda specs: [tuple((s.goal, s.colours, s.forbidden) for s in specs)],
    "DoorTask": lambda specs: [tuple((s.door, s.keys) for s in specs)],
    "LakeTask": lambda specs: [s.rows for s in specs],
    "AlchemyTask": lambda specs: [(specs[0].recipes, *(s.target for s in specs))],
    "GridTask": lambda specs: [s.costs if len(set(s.costs[0])) > 1 else (s.start, s.goal) for s in specs],
    "PDETask": lambda specs: [specs[0].equation],
    "ControlTask": lambda specs: [(specs[0].a, specs[0].b)],
    "ClinicTask": lambda specs: [turns_of(s) for s in specs],
    "TerminalTask": lambda specs: [s.site if s.site.quirks.found else s for s in specs],
    "AppsTask": lambda specs: [(specs[0].person, specs[0].facts)],
    "InventedTask": lambda specs: [specs[0].rules],
}
"""What no two splits have of packs of four tasks, by the class of a task's spec."""


@every_world
def test_packs_of_two_splits_share_nothing_that_is_held_out_and_longer_ones_begin_as_shorter_ones(name):
    env, drawn = WORLDS[name].make(), []
    for seed, split in enumerate(Split):
        packs = [env.sample_pack(split=split, index=index, num_tasks=4, seed=seed) for index in range(25)]
        specs = [[task.spec for task in pack.tasks] for pack in packs]
        if name == "terminal-compact":
            drawn.append({canonical(spec) for own in specs for spec in own})
        else:
            drawn.append({one for own in specs for one in HELD_OUT[type(own[0]).__name__](own)})
        assert env.sample_pack(split=split, index=3, num_tasks=9, seed=seed).tasks[:4] == packs[3].tasks
    assert sum(map(len, drawn)) == len(set.union(*drawn))


OTHERS = [
    (Levers, {}, [{"labels": "random"}], [{"protocol": "compact"}, {"length_penalty": 0.5}]),
    (
        FrozenLakeObscure,
        {},
        [
            {"size_min": 5}, {"size_max": 6}, {"frozen_p_min": 0.5}, {"frozen_p_max": 0.8}, {"min_shortest_path": 2},
            {"max_shortest_path": 5}, {"mappings": (1, 2)},
        ],
        [{"feedback": "positions", "protocol": "compact", "length_penalty": 0.5}],
    ),
    (
        Alchemy,
        {},
        [
            HARD_ALCHEMY, COMPACT_ALCHEMY, {"max_turns": 9}, {"brute_force": False}, {"noise_max": 0.2}, {"shrink_max": 0.9},
            {"recipes_max": 2}, {"max_tier_gap": 2}, {"materials": "limited"},
            {"materials": "limited", "multiplier_max": 3},
        ],
        [{"length_penalty": 0.0}],
    ),
    (
        OptimalControl,
        {},
        [{"horizon_max": 13}, {"process_noise": 0.1}, {"protocol": "compact"}, {"b_max": 1.4}],
        [{"world_memory": False}],
    ),
    (
        GridNavigation,
        {},
        [{"side_max": 13}, {"hills": 5}, {"scale_max": 0.4}, {"rounds_max": 6}, COMPACT_GRID],
        [{"world_memory": False, "reveal_radius": 2}],
    ),
    (
        Learn2Ask,
        {},
        [{"num_items": 9}, {"num_required": 2}, {"num_conditions": 4}, {"stop_share": 0.5}, {"split_by": "diagnosis"}],
        [{"normalise": False, "form": "raw"}],
    ),
    (
        Terminal,
        {},
        [{"quirks": 1}, {"max_turns": 5}, {"max_commands": 3}, {"composite_ratio": 0.2}, {"protocol": "compact"}],
        [{"feedback": "plain", "length_penalty": 0.2}],
    ),
    (PDEDiscovery, {}, [{"max_terms": 1}, {"noise_level": 0.01}, {"grid_points": 65}], [{"world_memory": False}]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "base", "others", "same"), OTHERS, ids=lambda one: getattr(one, "__name__", ""))
def test_worlds_that_draw_other_packs_have_other_names_and_other_words_change_none(kind, base, others, same):
    plain = kind(**base)
    assert len({plain.name, *(kind(**other).name for other in others)}) == 1 + len(others)
    pack = plain.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    for one in same:
        assert kind(**one).name == plain.name
        assert kind(**one).sample_pack(split=Split.TRAIN, index=0, num_tasks=2) == pack


PLAYED = {
    "levers-natural": (Levers, 200, (0.38, 0.64), 0.95, 0.6),
    "levers-compact": (lambda: Levers(protocol="compact"), 200, (0.38, 0.64), 0.95, 0.6),
    "levers-labels": (lambda: Levers(labels="random"), 100, (0.3, 0.7), 0.95, 0.6),
    "doors-natural": (lambda: Doors(num_doors=4, glimpses=2), 200, (0.4, 0.6), 0.9, 0.55),
    "doors-compact": (lambda: Doors(num_doors=4, glimpses=2, protocol="compact"), 200, (0.4, 0.6), 0.9, 0.55),
    "lake-compact": (
        lambda: FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact"), 150, (0.5, 0.8), 0.94, 0.5,
    ),
    "lake-natural": (FrozenLakeObscure, 60, (0.4, 0.75), 0.9, 0.5),
    "lake-positions": (lambda: FrozenLakeObscure(feedback="positions"), 60, (0.4, 0.75), 0.9, 0.5),
}  # fmt: skip
"""How it is made, packs, bounds of the scripted player's first success, and of its last; most of random play."""


@pytest.mark.parametrize("name", PLAYED)
def test_scripted_success_rises_with_the_position_and_random_play_does_not(name):
    make, num_packs, (low, high), last, by_chance = PLAYED[name]
    env, protocol = make(), "compact" if "compact" in name else "natural"
    first, *_, fourth = success_by_position(env, Reference.SCRIPTED, protocol, num_packs)
    assert low < first < high
    assert fourth > max(last, first + 0.15)
    by_position = success_by_position(env, Reference.RANDOM, protocol, num_packs)
    assert max(by_position) < by_chance
    assert success_by_position(env, Reference.ORACLE, protocol, 10)[0] > first


def _recipes(**known: str) -> str:
    pairs = ("a+a", "a+b", "a+c", "b+b", "b+c", "c+c", "k+k", "k+l", "l+l")
    return " ".join(f"{pair}={known.get(pair.replace('+', ''), '?')}" for pair in pairs)


SMALL_CLINIC = {"num_items": 6, "num_required": 2, "num_conditions": 3}
NOTED = {
    "levers": (Levers, {}, "update", {"miss 1=red": "1=red 2=? 3=? 4=?", "win 3=gold": "1=? 2=? 3=gold 4=?"}),
    "lake": (
        FrozenLakeObscure, {}, "update", {"hole 1=up": "1=up 2=? 3=? 4=?", "goal 3=left 2=up": "1=? 2=up 3=left 4=?"},
    ),
    "alchemy": (
        Alchemy, COMPACT_ALCHEMY, "update",
        {"late a+b=k": _recipes(ab="k"), "win c+c=0 k+k=p": _recipes(cc="0", kk="p")},
    ),
    "control": (
        OptimalControl, COMPACT_CONTROL, "update b=+big a=?",
        {"poor b=-small a=damped": "b=-small a=damped", "good a=lively": "b=+big a=lively"},
    ),
    "grid": (
        GridNavigation, COMPACT_GRID, "update",
        {"goal loss=1 row1=50": "row0=? row1=50 row2=? row3=?", "miss row3=0": "row0=? row1=? row2=? row3=0"},
    ),
    "pde": (
        PDEDiscovery, {}, "update -u:no",
        {
            "done u-u2:no u-u3:ok": "-u:no -u3:? u-u2:no u-u3:ok t-u2:? t-u3:? s-u2:? s-u3:?",
            "done t-u2:ok": "-u:no -u3:? u-u2:? u-u3:? t-u2:ok t-u3:? s-u2:? s-u3:?",
        },
    ),
    "learn2ask": (
        Learn2Ask, SMALL_CLINIC, "update fever=yes",
        {
            "near want=allergy medication=no": "duration=no chronic=no fever=yes pain=no allergy=yes medication=no",
            "near pain=no": "duration=? chronic=? fever=yes pain=no allergy=? medication=?",
        },
    ),
}  # fmt: skip
"""The world in compact words, its parameters, what an update begins with, and the right note by what the feedback says."""


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
@pytest.mark.parametrize("name", NOTED)
def test_a_teachers_note_follows_the_record_exactly_as_far_as_the_dial_says(name, accuracy):
    kind, parameters, begins, right = NOTED[name]
    dials = (QuotingDials if name in ("levers", "lake") else TeacherDials)(note_accuracy=accuracy)
    env = kind(**{**parameters, "protocol": "compact"}, teacher=dials)
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    asked = [[Message(Role.SYSTEM, begins), Message(Role.USER, feedback)] for feedback in right]
    first, second = ([teacher.note(messages, random.Random(i)) for i in range(20)] for messages in asked)
    if accuracy:
        assert [set(first), set(second)] == [{note} for note in right.values()]
    else:
        assert first == second, "whatever the record says"
        assert len(set(first)) > 5
