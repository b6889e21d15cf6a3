"""Houses of TextWorld's: what is generated, that its rules and its interpreter agree, and that the world keeps the contract."""

import random
import re

import pytest

from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.evaluation.references import play_reference, scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeStatus, Split
from tests.envs.scripted_life import by_position, live

textworld = pytest.importorskip("textworld", reason="pip install -e '.[textworld]'")

from cod_lightning.envs.textworld import TextWorldHouse, games, houses  # noqa: E402
from tests.cases import each  # noqa: E402

COMPACT = {"layout": "hub", "doors": "none", "num_things": 4, "num_holders": 2, "max_turns": 4, "protocol": "compact"}
LOCKED = {"doors": "locked", "num_rooms": 6, "num_holders": 4, "max_turns": 8}


@pytest.fixture(scope="module")
def compact():
    return TextWorldHouse(**COMPACT)


def house_of(env, index, split=Split.TRAIN):
    return env.sample_pack(split=split, index=index, num_tasks=1).tasks[0].spec.house


def test_no_rule_of_the_contract_is_broken_by_fused_words(compact):
    found = list(check_world(compact, HintContext("compact"), num_packs=4, pack_size=4))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}
    oracle = next(verdict for verdict in found if verdict.rule.startswith("oracle"))
    assert oracle.remark == "success by position 1.00 1.00 1.00 1.00"


@pytest.mark.slow
@pytest.mark.parametrize("doors", ["closed", pytest.param("locked", marks=pytest.mark.soak)])
def test_no_rule_of_the_contract_is_broken_by_the_interpreter(doors):
    env = TextWorldHouse(**(LOCKED if doors == "locked" else {}))
    found = list(check_world(env, HintContext(), num_packs=2, pack_size=3))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}
    oracle = next(verdict for verdict in found if verdict.rule.startswith("oracle"))
    assert oracle.remark == "success by position 1.00 1.00 1.00"


def test_notes_help_a_scripted_player_and_nothing_helps_one_without(compact):
    first, *_, last = by_position(compact, Reference.SCRIPTED, 40)
    assert last > max(0.75, first + 0.15)
    packs = [compact.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(30)]
    for kind, blanked in ((Reference.SCRIPTED, True), (Reference.RANDOM, False)):
        lives = play_reference(compact, packs, kind, HintContext("compact"), blanked=blanked)
        lasts = [life.solves[-1].success for life in lives]
        assert sum(lasts) / len(lasts) < 0.7


def test_no_map_and_no_places_are_in_two_splits_and_tasks_of_a_pack_are_in_one_house_and_seek_what_is_in_it(compact):
    maps, places = {}, {}
    for split in Split:
        for index in range(10):
            house = house_of(compact, index, split)
            assert maps.setdefault(houses.map_text(house), split) is split
            assert places.setdefault(houses.places_text(house), split) is split
    assert len(maps) > 8
    assert len(places) > 15
    for index in range(20):
        pack = compact.sample_pack(split=Split.TRAIN, index=index, num_tasks=6)
        assert len({task.spec.house for task in pack.tasks}) == 1
        for number, task in enumerate(pack.tasks):
            assert task.spec.target in houses.things_of(task.spec.house)
            assert task.repeat == (task.spec.target in {t.spec.target for t in pack.tasks[:number]})


@each("doors", ["none", "closed", "locked"])
def test_a_stated_place_is_where_the_facts_put_the_thing(doors):
    env = TextWorldHouse(layout="grid", doors=doors, num_rooms=6)
    spots = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
    for index in range(5):
        house = house_of(env, index)
        facts = [(fact.name, *(v.name for v in fact.arguments)) for fact in houses.world_of(house).state.facts]
        where = {"r_0": (0, 0)}  # rooms on a plan, from the facts alone
        for _ in range(6):
            for name, there, here in (fact for fact in facts if fact[0].endswith("_of")):
                if here in where:
                    x, y = spots[name.removesuffix("_of")]
                    where[there] = (where[here][0] + x, where[here][1] + y)
        inside = {what: place for name, what, place in (f for f in facts if len(f) == 3) if name in ("at", "in", "on")}
        for thing, route in houses.places(house).items():
            steps = [] if route == "here" else [spots[step] for step in route.split(".")]
            room = inside[thing] if inside[thing].startswith("r") else inside[inside[thing]]
            assert (sum(x for x, _ in steps), sum(y for _, y in steps)) == where[room]


def test_no_shorter_sequence_of_deeds_than_the_plan_takes_the_thing():
    env = TextWorldHouse(**LOCKED)
    checked = 0
    for index in range(4):
        house = house_of(env, index)
        plans = houses.plans(house, 8)
        states, had = [houses.world_of(house).state], {}
        for depth in range(1, 4):  # every sequence, without remembering states
            following = []
            for state in states:
                for deed in houses.deeds(state):
                    following.append(houses.after(state, deed.action))
                    if deed.verb == "take" and not deed.what.startswith("k"):
                        had.setdefault(deed.what, depth)
            states = following
        assert {thing: len(plan) for thing, plan in plans.items() if len(plan) < 4} == had
        checked += len(had)
    assert checked > 5


def test_what_is_locked_is_opened_with_a_key_that_was_taken():
    env = TextWorldHouse(**LOCKED)
    unlocked = 0
    for index in range(10):
        for plan in houses.plans(house_of(env, index), 8).values():
            for number, deed in enumerate(plan):
                if deed.verb == "unlock":
                    keys = {v.name for v in deed.action.variables if v.type == "k"}
                    assert keys & {earlier.what for earlier in plan[:number] if earlier.verb == "take"}
                    unlocked += 1
    assert unlocked > 0


@each("protocol", ["natural", "compact"])
def test_a_note_is_read_back_as_it_was_written(protocol, compact):
    wording = compact.wording if protocol == "compact" else TextWorldHouse().wording
    places = {"f_0": "north", "o_1": "here", "o_0": "west"}
    assert wording.places(wording.write(places)) == places
    assert wording.places("f_0=nowhere x=north - f_0: go up") == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is not fully supported")
def test_the_rules_alone_and_the_interpreter_agree_step_by_step():
    env = TextWorldHouse(**LOCKED)
    rng = random.Random(0)
    steps = wins = 0
    for index in range(6):
        task = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=1).tasks[0]
        house, target = task.spec.house, task.spec.target
        infos = textworld.EnvInfos(admissible_commands=True, won=True, score=True)
        game = textworld.start(str(games.compiled(house, target, env.max_turns)), infos)
        shown, state = game.reset(), houses.world_of(house).state
        plan = [games.command_of(house, deed.action) for deed in houses.plans(house, env.max_turns)[target]]
        wander = [None] * rng.randint(0, 6)
        for planned in [*wander, None, *plan][: 14 if wander else None]:
            possible = games.commands(house, state)
            assert sorted(possible) == sorted(shown["admissible_commands"])
            command = planned if planned in possible else rng.choice(sorted(possible))
            state = houses.after(state, possible[command])
            shown, score, done = game.step(command)
            steps += 1
            assert (score, done) == (int(houses.holds(state, target)),) * 2
            if done:
                wins += 1
                break
        game.close()
    assert steps > 20
    assert wins > 0


@pytest.mark.slow
def test_a_game_that_is_damaged_in_the_cache_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path))
    env = TextWorldHouse()
    spec = env.sample_pack(split=Split.TEST, index=0, num_tasks=1).tasks[0].spec
    path = games.compiled(spec.house, spec.target, env.max_turns)
    for file in (path, path.with_suffix(".json")):
        size = file.stat().st_size
        file.write_bytes(file.read_bytes()[: size // 2])
        games._whole.clear()  # as in the next process
        assert games.compiled(spec.house, spec.target, env.max_turns) == path
        assert file.stat().st_size == size


def test_the_text_begins_with_the_room_and_tells_no_way_and_case_does_not_matter():
    env = TextWorldHouse(layout="hub", max_turns=5)
    (task,) = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks
    first, _ = env.reset(options={"task": task})
    assert first.startswith("-= ")
    assert not re.search(r"\$\$|[Yy]our (task|objective)", first)
    for deed in houses.plans(task.spec.house, 5)[task.spec.target]:
        last = env.step(f"<answer> {games.command_of(task.spec.house, deed.action).upper()} </answer>")
    assert (last[1], env.success, env.status) == (1.0, True, EpisodeStatus.COMPLETED)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--env.world.layout", "grid", "--env.world.doors", "locked")])
def test_the_shipped_houses_are_played_in_worker_processes_with_the_same_episodes(more):
    remote = parse_world("check", "", ["--env", "textworld_easy", *more]).env
    assert isinstance(remote, ProcessWorld)
    pack = remote.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    policy = beside(remote, Players).reference(Reference.SCRIPTED, pack)
    assert live(remote, pack, policy, 1) == live(remote.world, pack, policy, 1)


@pytest.mark.slow
def test_many_lifecycles_at_once_in_threads_are_those_that_are_played_one_by_one():
    env = TextWorldHouse(layout="hub", max_turns=5)
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2) for index in range(4)]
    mechanism = HintContext()

    def played(some):
        policy = beside(env, Players).reference(
            Reference.SCRIPTED, packs[0]
        )  # it knows of no pack more than its labels, for random notes
        setting = Setting(env=env, mechanism=mechanism, sampler=scripted_sampler(policy, mechanism))
        return [life for group in run_groups(some, 3, setting) for life in group.lifecycles]

    together = played(packs)
    assert not any(life.failed for life in together)
    apart = [life for pack in packs for life in played([pack])]
    assert [[e.turns for e in life.episodes] for life in together] == [
        [e.turns for e in life.episodes] for life in apart
    ]


@each(
    ("settings", "named"),
    [
        ({"layout": "hub", "num_rooms": 6}, "data.env.num_rooms"),
        ({"layout": "grid", "protocol": "compact"}, "data.env.layout"),
        ({"layout": "hub", "doors": "locked", "protocol": "compact"}, "data.env.doors"),
        ({"min_commands": 9}, "data.env.min_commands"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(settings, named):
    with pytest.raises(ConfigError, match=named):
        TextWorldHouse(**settings)
