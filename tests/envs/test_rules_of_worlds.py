"""What packs, names, references and teachers of every world of hidden rules keep to, world by world in tables."""

import random
from dataclasses import fields
from statistics import fmean

import pytest

from cod_lightning.envs import QuotingDials, TeacherDials
from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.invented import Invented
from cod_lightning.envs.invented.kinds import FAMILIES
from cod_lightning.envs.learn2ask import Learn2Ask
from cod_lightning.envs.learn2ask.clinic import turns_of
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.terminal import Terminal
from cod_lightning.envs.ways import AppsWays, TerminalWays
from cod_lightning.envs.ways.terminal import canonical
from cod_lightning.types import Message, Role, Split
from tests.cases import each
from tests.envs.alchemy.worlds import COMPACT as COMPACT_ALCHEMY
from tests.envs.alchemy.worlds import HARD as HARD_ALCHEMY
from tests.envs.alchemy.worlds import MANY
from tests.envs.cases import WORLDS, every_world
from tests.envs.control.cases import COMPACT as COMPACT_CONTROL
from tests.envs.grid.cases import COMPACT as COMPACT_GRID
from tests.envs.hidden_rules import HIDDEN
from tests.envs.pde.cases import compact, natural
from tests.envs.scripted_life import by_position, hints, live, player, solve

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
    "InventedTask": lambda specs: [specs[0].rule],
}
"""What no two splits have of packs of four tasks, by the class of a task's spec."""


@every_world
def test_packs_of_two_splits_share_nothing_that_is_held_out_and_longer_ones_begin_as_shorter_ones(name):
    env, drawn = WORLDS[name].make(), []
    for seed, split in enumerate(Split):
        packs = [env.sample_pack(split=split, index=index, num_tasks=4, seed=seed) for index in range(10)]
        specs = [[task.spec for task in pack.tasks] for pack in packs]
        if name == "terminal-compact":
            drawn.append({canonical(spec) for own in specs for spec in own})
        else:
            drawn.append({one for own in specs for one in HELD_OUT[type(own[0]).__name__](own)})
        assert env.sample_pack(split=split, index=3, num_tasks=9, seed=seed).tasks[:4] == packs[3].tasks
    assert sum(map(len, drawn)) == len(set.union(*drawn))


FITTED = {"AlchemyTask": ("stock",), "AppsTask": ("budget",), "InventedTask": ("goal",)}
"""What may follow a change of it, so that every task can still be solved."""


@every_world
def test_a_pack_hides_one_rule_and_neither_the_rules_nor_the_first_observation_of_a_task_show_a_change_of_it(name):
    env = WORLDS[name].make()
    pack = env.sample_pack(split=Split.TRAIN, index=3, num_tasks=4)
    changed = beside(env, HiddenRules).changed(pack, at=2, seed=1)
    kind = type(pack.tasks[0].spec).__name__
    hidden, fitted = HIDDEN[kind], FITTED.get(kind, ())
    rules = [
        {tuple(getattr(t.spec, name) for name in hidden) for t in tasks} for tasks in (pack.tasks, changed.tasks[2:])
    ]
    assert [len(one) for one in rules] == [1, 1]
    assert rules[0] != rules[1]
    assert (changed.tasks[:2], changed.split) == (pack.tasks[:2], pack.split)
    assert beside(env, HiddenRules).changed(pack, at=2, seed=1) == changed
    for old, new in zip(pack.tasks[2:], changed.tasks[2:], strict=True):
        same = [field.name for field in fields(old.spec) if field.name not in (*hidden, *fitted)]
        assert [getattr(new.spec, name) for name in same] == [getattr(old.spec, name) for name in same]
        seen = [(env.reset(options={"task": task})[0], env.rules) for task in (old, new)]
        assert seen[0] == seen[1] or (seen[0][1] == seen[1][1] and fitted)


SMALL_CLINIC = {"num_items": 6, "num_required": 2, "num_conditions": 3}
OTHERS = [
    (Levers, {}, [{"labels": "random"}], [{"protocol": "compact"}, {"length_penalty": 0.5}]),
    (
        FrozenLakeObscure,
        {},
        [
            {"size_min": 5}, {"size_max": 6}, {"frozen_p_min": 0.5}, {"frozen_p_max": 0.8},
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
        [{"horizon": 13}, {"protocol": "compact"}, {"b_max": 1.4}],
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
        [{"num_items": 9}, {"num_required": 2}, {"num_conditions": 4}],
        [{"normalise": False, "form": "raw"}],
    ),
    (
        Terminal,
        {},
        [{"quirks": 1}, {"max_turns": 5}, {"composite_ratio": 0.2}],
        [{"feedback": "plain", "length_penalty": 0.2}],
    ),
    (PDEDiscovery, {}, [{"max_terms": 1}, {"noise_level": 0.01}, {"grid_points": 65}], [{"world_memory": False}]),
    (
        Apps,
        {},
        [
            {"quirks": 3}, {"max_turns": 20}, {"spare_calls": 3}, {"difficulties": (1,)}, {"split_by": ("template",)},
            {"templates": ["send_mail"]},
        ],
        [],
    ),
]  # fmt: skip


@each(("kind", "base", "others", "same"), OTHERS)
def test_worlds_that_draw_other_packs_have_other_names_and_other_words_change_none(kind, base, others, same):
    plain = kind(**base)
    assert len({plain.name, *(kind(**other).name for other in others)}) == 1 + len(others)
    pack = plain.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    for one in same:
        assert kind(**one).name == plain.name
        assert kind(**one).sample_pack(split=Split.TRAIN, index=0, num_tasks=2) == pack


PLAYED = {
    "levers-natural": (Levers, "success", 80, (0.38, 0.64), 0.95, 0.6),
    "levers-compact": (lambda: Levers(protocol="compact"), "success", 80, (0.38, 0.64), 0.95, 0.6),
    "levers-labels": (lambda: Levers(labels="random"), "success", 60, (0.3, 0.7), 0.9, 0.6),
    "doors-natural": (lambda: Doors(num_doors=4, glimpses=2), "success", 80, (0.4, 0.6), 0.85, 0.6),
    "doors-compact": (lambda: Doors(num_doors=4, glimpses=2, protocol="compact"), "success", 80, (0.4, 0.6), 0.85, 0.6),
    "lake-compact": (
        lambda: FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact"), "success", 60, (0.5, 0.8), 0.94, 0.5,
    ),
    "apps-compact": (AppsWays, "success", 30, (0.1, 0.7), 0.7, 0.5),
    "learn2ask-compact": (lambda: Learn2Ask(**SMALL_CLINIC, protocol="compact"), "reward", 60, (0.36, 0.6), 0.85, 0.5),
}  # fmt: skip
"""How it is made, what is counted, packs, bounds of the scripted player's first mean, and of its last; most of random play."""
PLAYED_SLOWLY = {
    "lake-positions": (lambda: FrozenLakeObscure(feedback="positions"), "success", 30, (0.4, 0.8), 0.9, 0.5),
    "terminal-hard": (lambda: Terminal(quirks=3, max_turns=3), "success", 40, (0.1, 0.6), 0.85, 0.2),
    "apps-quirks": (lambda: Apps(quirks=5), "success", 15, (-0.1, 0.5), 0.9, 0.1),
    "lake-natural": (FrozenLakeObscure, "success", 30, (0.4, 0.8), 0.9, 0.5),
    "alchemy-compact": (lambda: Alchemy(**COMPACT_ALCHEMY), "success", 100, (0.45, 0.65), 0.95, 0.4),
    "alchemy-many": (lambda: Alchemy(**MANY), "success", 60, (0.0, 0.5), 0.6, 0.5),
    "alchemy-hard": (lambda: Alchemy(**HARD_ALCHEMY), "success", 60, (0.0, 0.5), 0.8, 0.5),
    "control": (lambda: OptimalControl(world_memory=False), "reward", 60, (0.7, 0.88), 0.95, 0.5),
    "grid-compact": (lambda: GridNavigation(**COMPACT_GRID), "reward", 80, (0.4, 0.66), 0.75, 0.6),
    "learn2ask": (Learn2Ask, "reward", 80, (0.36, 0.6), 0.85, 0.5),
    "pde": (lambda: natural(world_memory=False), "success", 16, (0.0, 0.95), 0.8, 0.4),
    "pde-compact": (compact, "success", 75, (0.2, 0.45), 0.35, 0.3),
    "terminal-compact": (TerminalWays, "success", 75, (0.38, 0.62), 0.78, 0.62),
}  # fmt: skip


@pytest.mark.parametrize("name", [*PLAYED, *(pytest.param(name, marks=pytest.mark.slow) for name in PLAYED_SLOWLY)])
def test_notes_lift_the_scripted_player_above_itself_without_notes_and_above_random_play_and_the_oracle_is_best(name):
    make, of, num_packs, (low, high), last, by_chance = {**PLAYED, **PLAYED_SLOWLY}[name]
    env = make()
    first, *_, fourth = by_position(env, Reference.SCRIPTED, num_packs, of)
    assert low < first < high
    assert fourth > max(last, first + 0.05)
    assert fmean(by_position(env, Reference.SCRIPTED, num_packs, of, remembers=False)) < fourth - 0.02
    assert max(by_position(env, Reference.RANDOM, num_packs, of)) < by_chance
    oracle = by_position(env, Reference.ORACLE, 10, of)
    assert min(oracle) == 1 if of == "success" else min(oracle) > first


BOTH = {
    "levers": lambda protocol: Levers(protocol=protocol),
    "doors": lambda protocol: Doors(num_doors=6, protocol=protocol),
    "lake": lambda protocol: FrozenLakeObscure(protocol=protocol),
    "lakes": lambda protocol: FrozenLakeObscure(size_min=3, size_max=8, protocol=protocol),
    "alchemy": lambda protocol: Alchemy(**{**COMPACT_ALCHEMY, "protocol": protocol}),
    "invented": lambda protocol: Invented(list(FAMILIES), protocol=protocol),
    "learn2ask": lambda protocol: Learn2Ask(**SMALL_CLINIC, protocol=protocol),
}
"""Worlds that are the same in sentences and in fused words."""


@each("name", BOTH)
def test_both_protocols_have_the_same_packs_and_are_played_alike(name, monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.alchemy.tasks.split_of", lambda recipes, targets: Split.TRAIN)
    for index in range(8):
        outcomes = []
        for protocol in ("natural", "compact"):
            env = BOTH[name](protocol)
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
            outcomes.append([(one.reward, len(one.messages)) for one in live(env, pack, Reference.SCRIPTED, index)])
        assert outcomes[0] == outcomes[1]


PERFECT = {"context_accuracy": 1.0, "context_true": 1.0, "context_junk": 0.0, "follow": 1.0, "note_accuracy": 1.0}
TAUGHT = {
    "levers": lambda dials: Levers(protocol="compact", teacher=QuotingDials(**dials)),
    "lake": lambda dials: FrozenLakeObscure(protocol="compact", teacher=QuotingDials(**dials)),
    "lake-quotes": lambda dials: FrozenLakeObscure(teacher=QuotingDials(**dials, quotes=True)),
    "alchemy": lambda dials: Alchemy(**COMPACT_ALCHEMY, teacher=TeacherDials(**dials)),
    "alchemy-hard": lambda dials: Alchemy(**HARD_ALCHEMY, teacher=TeacherDials(**dials)),
    "grid": lambda dials: GridNavigation(**COMPACT_GRID, teacher=TeacherDials(**dials)),
    "learn2ask": lambda dials: Learn2Ask(**SMALL_CLINIC, protocol="compact", teacher=TeacherDials(**dials)),
    "terminal": lambda dials: Terminal(quirks=3, teacher=TeacherDials(**dials)),
    "control": lambda dials: OptimalControl(world_memory=False, teacher=TeacherDials(**dials)),
}


@each("name", TAUGHT)
def test_a_perfect_teacher_with_true_contexts_is_as_good_as_the_oracle_and_other_dials_give_junk_or_none(name):
    env, junk = TAUGHT[name](PERFECT), TAUGHT[name]({**PERFECT, "context_true": 0.0, "context_junk": 1.0})
    none = TAUGHT[name]({**PERFECT, "context_true": 0.0})
    for index in range(4):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        taught, knew = ([one.reward for one in live(env, pack, kind)] for kind in ("teacher", Reference.ORACLE))
        assert taught == pytest.approx(knew, abs=0.02)
        contexts = [
            {player(one, pack, "teacher").context(random.Random(n)) for n in range(20)} for one in (env, junk, none)
        ]
        assert (len(contexts[0]), contexts[2]) == (1, {""})
        assert len(contexts[1]) > 5


@each("name", TAUGHT)
def test_what_the_oracle_notes_is_worth_as_much_to_the_scripted_player_as_knowing_the_rule(name):
    env = TAUGHT[name](PERFECT)
    for index in range(4):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        knew, scripted = live(env, pack, Reference.ORACLE), player(env, pack, Reference.SCRIPTED)
        taught = [solve(env, task, scripted, hints(env), knew[0].note, random.Random(0))[1] for task in pack.tasks]
        assert [one.reward for one in taught] == pytest.approx([one.reward for one in knew], abs=0.02)


def _recipes(**known: str) -> str:
    pairs = ("a+a", "a+b", "a+c", "b+b", "b+c", "c+c", "k+k", "k+l", "l+l")
    return " ".join(f"{pair}={known.get(pair.replace('+', ''), '?')}" for pair in pairs)


NOTED = {
    "levers": (Levers, {}, "update", {"miss 1=red": "1=red 2=? 3=? 4=?", "win 3=gold": "1=? 2=? 3=gold 4=?"}),
    "lake": (
        FrozenLakeObscure, {}, "update", {"hole 1=up": "1=up 2=? 3=? 4=?", "goal 3=left 2=up": "1=? 2=up 3=left 4=?"},
    ),
    "alchemy": (
        Alchemy, COMPACT_ALCHEMY, "update a+b=l b+c=0",
        {"late a+b=k": _recipes(ab="k", bc="0"), "win c+c=0 k+k=p": _recipes(ab="l", bc="0", cc="0", kk="p")},
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


@each("accuracy", [0.0, 1.0])
@each("name", NOTED)
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
