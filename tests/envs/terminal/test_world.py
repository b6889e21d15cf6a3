"""The terminal as a world: tasks, goals, packs, references; what it says is in dialogues.txt."""

import random
import time
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.envs import TeacherDials
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside, split_of_text
from cod_lightning.envs.terminal import Terminal
from cod_lightning.envs.terminal.goals import missing, set_up
from cod_lightning.envs.terminal.plans import num_lines, plan
from cod_lightning.envs.terminal.quirks import SLOTS, Quirks, draw_site, read_facts, with_quirks, write_facts
from cod_lightning.envs.terminal.tasks import COMPOSITE, SINGLE, TYPES, draw_task, goal_text, read_goal
from cod_lightning.envs.terminal.wording import read_view, view_of
from cod_lightning.errors import ConfigError
from cod_lightning.types import Message, Role, Split, Task
from tests.cases import each
from tests.envs.scripted_life import by_position, live, solve


def _task(kind: str, seed: int = 0, num_quirks: int = 0, system: str = ""):
    rng = random.Random(seed)
    site = draw_site(rng, 0)
    site = with_quirks(replace(site, system=system or site.system), rng, num_quirks)
    return draw_task(rng, site, kind)


# ---------------------------------------------------------------------- tasks and goals


@each("seed", range(1), slow=range(1, 8))
@each("kind", TYPES)
@each("num_quirks", [0, 1, 3, 6])
def test_every_task_begins_unsolved_and_its_plan_solves_it_under_any_quirks(kind, num_quirks, seed):
    spec = _task(kind, seed, num_quirks)
    env, task = Terminal(quirks=min(1, num_quirks)), Task(id="0", seed=0, spec=spec)
    env.reset(options={"task": task})
    assert missing(spec, set_up(spec))
    pack = replace(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1), tasks=(task,))
    oracle = beside(env, Players).reference(Reference.ORACLE, pack)
    _, lived = solve(env, task, oracle, HintContext("natural"), "", random.Random(0))
    assert lived.success, lived
    assert len(lived.messages) // 2 == num_lines(view_of(spec), spec.site.quirks) <= 2


@each("kind", TYPES)
def test_every_step_of_a_plan_is_needed(kind):
    for seed in range(12):
        task = _task(kind, seed, seed % 3 * 2)
        steps = plan(view_of(task), task.site.quirks)
        for left_out in steps:
            shell, solved = set_up(task), False
            for step in steps:
                if step is not left_out:
                    on_host = step.side == "remote"
                    shell.sessions = [shell.remote] if on_host else []
                    shell.run(step.command)
                    solved = solved or not missing(task, shell)
            assert not solved, (kind, left_out)


def test_a_file_that_is_moved_over_another_is_not_deleted_alone():
    seed = next(n for n in range(99) if (task := _task("delete", n, 0, "linux")).decoys and task.side == "local")
    task = _task("delete", seed, 0, "linux")
    shell = set_up(task)
    assert shell.run(f"cd {task.site.local_folder} && mv {task.file} {task.decoys[0]}").code == 0
    assert missing(task, shell).endswith(f"{task.decoys[0]} on the local machine has other content")


@given(st.sampled_from(TYPES), st.integers(0, 10**6), st.integers(0, 6))
def test_a_goals_sentence_and_the_facts_of_a_site_read_back(kind, seed, num_quirks):
    task = _task(kind, seed, num_quirks)
    read, parts = read_goal(goal_text(task))
    assert read == kind
    assert parts.get("file", task.file) == task.file
    assert parts.get("mode", task.mode) == task.mode
    first, _ = Terminal().reset(options={"task": Task(id="0", seed=0, spec=task)})
    assert read_view(first) == view_of(task)
    assert read_facts(write_facts(task.site.quirks)) == task.site.quirks
    assert len(task.site.quirks.found) == num_quirks


@each("system", ["linux", "mac", "windows"])
def test_local_windows_has_no_chmod_and_only_zip(system):
    for seed in range(60):
        assert _task("chmod", seed, system=system).side == "remote" or system != "windows"
        endings = {
            _task(kind, seed, system=system).other.partition(".")[2] for kind in ("pack_upload", "pack_upload_extract")
        }
        assert endings <= ({"zip"} if system == "windows" else {"zip", "tar", "tar.gz"})


WILD = (
    "rm -rf / ; rm -rf ~/* ; rm -rf /*",
    "cp -r / /tmp/a ; cp -r /tmp /tmp/a",
    "mkdir -p " + "a/b/" * 7,
    "tar -czf a.tar.gz / && tar -xf a.tar.gz",
    "zip -r a.zip / ; unzip a.zip",
    "mv /home /tmp",
    "touch " + " ".join(map(str, range(60))),
    "cp -r /home/user /home/user/x",
    "cat /*/*/*/* ",
    "ls " + "*/" * 400,
    "rsync -a / /tmp/all ; rsync -a / .",
    "scp -r / HOST:/tmp ; scp -r HOST:/ . ; scp -r HOST:/* .",
    "ssh HOST && rm -rf / ; cp -r / . ; tar -cf /tmp/a / ; exit",
    "ssh HOST 'ssh HOST \"ls\"'",
    "chmod -R 000 /",
    "cd /tmp",
    "ls " + "[" * 900,
    "ls " + "*a" * 400 + "b",
    "echo " + "$PWD" * 200,
    "cp * /tmp ; cp -r /tmp/* .",
    "gzip * ; gunzip *",
)


@given(st.lists(st.sampled_from(WILD), min_size=1, max_size=12))
def test_wild_lines_are_bounded_work(lines):
    env, spec, began = Terminal(max_turns=20), _task("upload", system="linux"), time.process_time()
    env.reset(options={"task": Task(id="0", seed=0, spec=spec)})
    for line in lines:
        command = line.replace("HOST", f"{spec.site.user}@{spec.site.host}")
        observation, _, terminated, _, _ = env.step(f"<answer>{command}</answer>")
        assert len(observation) < 4000
        if terminated:
            break
    assert time.process_time() - began < len(lines)


# ---------------------------------------------------------------------- packs


@each("split", list(Split))
def test_a_pack_is_one_site_of_its_split_with_the_asked_number_of_quirks(split):
    env = Terminal(quirks=2)
    for index in range(60):
        specs = [t.spec for t in env.sample_pack(split=split, index=index, num_tasks=5).tasks]
        assert len({spec.site for spec in specs}) == 1
        assert split_of_text(repr(specs[0].site)) is split
        assert len(specs[0].site.quirks.found) == 2
        assert len({spec.marker for spec in specs}) == 5


def test_with_0_quirks_all_is_redrawn_for_each_task_and_nothing_is_hidden():
    env = Terminal(quirks=0)
    for split in Split:
        specs = [t.spec for i in range(12) for t in env.sample_pack(split=split, index=i, num_tasks=4).tasks]
        assert len({spec.site for spec in specs}) == len(specs)
        assert {spec.site.quirks for spec in specs} == {Quirks()}
        assert {split_of_text(repr(spec)) for spec in specs} == {split}
        assert {spec.site.system for spec in specs} == {"linux", "mac", "windows"}


def test_every_quirk_and_type_occurs_and_types_have_the_asked_shares():
    env = Terminal(quirks=1)
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(250)]
    specs = [task.spec for pack in packs for task in pack.tasks]
    assert {spec.site.quirks.found[0] for spec in specs} == set(SLOTS)
    assert {spec.type for spec in specs} == set(TYPES)
    assert sum(spec.type in COMPOSITE for spec in specs) / len(specs) == pytest.approx(0.5, abs=0.06)
    rare = Terminal(quirks=1, composite_ratio=0.0).sample_pack(split=Split.TRAIN, index=0, num_tasks=30)
    assert {task.spec.type for task in rare.tasks} <= set(SINGLE)


def test_without_a_hidden_rule_there_is_none_to_change():
    env = Terminal(quirks=0)
    with pytest.raises(ConfigError) as caught:
        beside(env, HiddenRules).changed(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4), 2, 0)
    assert caught.value.key == "data.env.quirks"


# ---------------------------------------------------------------------- who plays


@each("parameters", [{"quirks": 0}, {"quirks": 1}, {"quirks": 2}, {"quirks": 3, "max_turns": 24}])
def test_with_turns_enough_the_scripted_player_finds_every_quirk_out(parameters):
    assert by_position(Terminal(**parameters), Reference.SCRIPTED, 12) == [1.0] * 4


def test_each_quirk_costs_turns_at_first_and_none_once_it_is_noted():
    env, first = Terminal(quirks=1), {slot: [] for slot in SLOTS}
    for index in range(100):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=1)
        quirks = pack.tasks[0].spec.site.quirks
        begun, later = live(env, replace(pack, tasks=pack.tasks * 2), Reference.SCRIPTED)
        turns = len(begun.messages) // 2
        first[quirks.found[0]].append(turns)
        assert len(later.messages) // 2 == 1
        assert turns == 1 or read_facts(begun.note) == quirks
    assert min(fmean(turns) for turns in first.values()) > 1.3


def test_a_rule_change_is_survived():
    env = Terminal(quirks=2)
    solved = []
    for index in range(40):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=6)
        changed = beside(env, HiddenRules).changed(pack, at=3, seed=0)
        solved += [lived.success for lived in live(env, changed, Reference.SCRIPTED)]
    assert sum(solved) / len(solved) > 0.95


@each("accuracy", [0.0, 1.0])
def test_a_teachers_note_follows_the_record_exactly_as_far_as_the_dial_says(accuracy):
    env = Terminal(
        teacher=TeacherDials(note_accuracy=accuracy, context_accuracy=1.0, context_true=1.0, context_junk=0.0)
    )
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    teacher = beside(env, Players).demonstrator(pack)
    facts = [Quirks(route="jump one"), Quirks(transfer="rsync", login="ops")]
    observation = [[Message(Role.SYSTEM, "x"), Message(Role.USER, f"x\n{write_facts(quirks)}\n")] for quirks in facts]
    first, second = (
        [read_facts(teacher.note(messages, random.Random(i))) for i in range(20)] for messages in observation
    )
    if accuracy:
        assert (set(first), set(second)) == ({facts[0]}, {facts[1]})
    else:
        assert first == second
    assert read_facts(teacher.context(random.Random(0))) == pack.tasks[0].spec.site.quirks
