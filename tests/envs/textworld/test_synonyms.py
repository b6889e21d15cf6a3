"""Houses that understand one word for each verb: what it costs to find them, and that all else stays as it was."""

import copy
import hashlib
import random
import re
from importlib.metadata import version

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.evaluation.references import play_reference
from cod_lightning.evaluation.suite import ConditionKind
from cod_lightning.types import Split
from tests.envs.scripted_life import live

textworld = pytest.importorskip("textworld", reason="pip install 'cod-lightning[textworld]'")

from cod_lightning.envs.textworld import TextWorldHouse  # noqa: E402
from cod_lightning.envs.textworld.synonyms import SYNONYMS  # noqa: E402
from cod_lightning.envs.textworld.world import HousePlayers  # noqa: E402

HIDDEN = {"layout": "hub", "num_holders": 3, "max_turns": 7, "commands": "hidden"}
COMPACT = {"layout": "hub", "doors": "none", "num_things": 4, "num_holders": 2, "max_turns": 4, "protocol": "compact"}


@pytest.fixture(scope="module")
def hidden():
    return TextWorldHouse(**HIDDEN)


def digests(env, protocol, num_packs):
    """Of packs, and of all that is shown and typed in them."""
    drawn, played = hashlib.sha256(), hashlib.sha256()
    for split in Split:
        for index in range(num_packs):
            pack = env.sample_pack(split=split, index=index, num_tasks=3)
            drawn.update(repr(pack).encode())
            for kind in Reference if split is Split.TRAIN else ():
                said = repr(live(env, pack, kind, index))
                played.update(said.replace(", parts=()", "").encode())  # of messages in text alone
    return drawn.hexdigest()[:16], played.hexdigest()[:16]


def words_of(env, pack):
    return env.wording.words_of(pack.tasks[0].spec.house)


def wrong(env, pack, verb):
    return next(word for word in SYNONYMS[verb] if word != words_of(env, pack)[verb])


RECORDED = {
    "compact": (COMPACT, 4, "f22bbd47800f2e44", "a015aff463f8fa49"),
    "natural": ({"layout": "hub", "max_turns": 5, "num_holders": 3}, 1, "a6d8c2d230388ace", "4e7e31dcd036781d"),
    "locked": ({"doors": "locked", "num_rooms": 6}, 1, "4ff7d6728570260a", "edb6406825765da9"),
}
"""Settings, packs of each split, and the digests of 2026-11 from before there were hidden commands."""


@pytest.mark.skipif(version("textworld") != "1.7.0", reason="another version of TextWorld draws other houses")
@pytest.mark.parametrize(
    "name", ["compact", pytest.param("natural", marks=pytest.mark.slow), pytest.param("locked", marks=pytest.mark.slow)]
)
def test_where_commands_are_known_all_packs_and_texts_are_what_they_were(name):
    settings, num_packs, *recorded = RECORDED[name]
    assert digests(TextWorldHouse(**settings), settings.get("protocol", "natural"), num_packs) == tuple(recorded)


def test_all_tasks_of_a_pack_have_the_words_of_their_house_and_packs_differ(hidden):
    packs = [hidden.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(20)]
    drawn = [[hidden.wording.words_of(task.spec.house) for task in pack.tasks] for pack in packs]
    assert all(words == own[0] for own in drawn for words in own)
    for verb in ("go", "open", "take"):
        assert {own[0][verb] for own in drawn} == set(SYNONYMS[verb])
    assert len({tuple(own[0].values()) for own in drawn}) > 8


@pytest.mark.slow
def test_a_word_that_the_house_does_not_know_costs_a_command_and_changes_nothing_else(hidden):
    env = copy.deepcopy(hidden)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    first, _ = env.reset(options={"task": pack.tasks[0]})
    possible = env.wording.commands(first)
    where = next(one for one in possible if one.startswith("go ")).removeprefix("go ")
    refused, word = wrong(env, pack, "go"), words_of(env, pack)["go"]
    shown, reward, *ends = env.step(f"<answer>{refused} {where}</answer>")
    assert (reward, ends) == (0.0, [False, False, {}])
    assert shown.startswith(f"This house does not know that word: {refused}.\n\nCommand 2 of 7.")
    assert env.wording.commands(shown) == possible
    shown, *_ = env.step(f"<answer>{word.upper()} {where}</answer>")
    assert shown.startswith("-= ")
    assert "Command 3 of 7." in shown
    for _ in range(4):
        env.step("<answer>look</answer>")
    feedback, *_ = env.step(f"<answer>{wrong(env, pack, 'take')} lamp</answer>")
    assert env.status == "truncated"
    assert env.wording.places(feedback)["go"] == word
    assert not {"take", "open"} & set(env.wording.places(feedback))


@pytest.mark.slow
def test_neither_what_is_listed_nor_what_the_interpreter_says_has_another_word_than_the_houses_own():
    env = TextWorldHouse(doors="locked", num_rooms=6, num_holders=4, max_turns=8, min_commands=4, commands="hidden")
    echoed = set()
    for index in range(8):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        words = words_of(env, pack)
        for life in live(env, pack, Reference.ORACLE):
            assert life.success
            assert env.wording.places(life.note).items() >= words.items()
            for message in life.messages[1::2]:
                lists = message.content.rpartition("\nCommand ")[2].splitlines()[1:]
                for line in lists:
                    assert re.match("(Ways|Closed|Things|Locked): ", line)
                assert not set(re.findall(r"\w+", " ".join(lists))) & {w for own in SYNONYMS.values() for w in own}
            for said in re.findall(
                r"^You (\w+) ", "\n".join(m.content for m in life.messages[3::2]), flags=re.MULTILINE
            ):
                echoed |= {verb for verb, own in SYNONYMS.items() if said in own}
                assert said in words.values() or said not in {w for own in SYNONYMS.values() for w in own}
    assert echoed >= {"open", "unlock"}


def test_a_note_of_places_and_words_is_read_back_as_it_was_written(hidden):
    known = {"go": "walk", "shadfly": "north.east", "take": "grab", "tea cup": "here"}
    assert hidden.wording.places(hidden.wording.write(known)) == known
    assert hidden.wording.places("- word for take: sudo\n- word for drop: grab\n- word for take: walk") == {}


def test_made_up_notes_hold_any_words_and_true_ones_those_of_the_house(hidden):
    pack = hidden.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    play, truth = HousePlayers(hidden).play(pack)
    rng = random.Random(0)
    assert play.noisy(truth, 1.0, rng) == truth
    junk = [play.junk(rng) for _ in range(100)]
    for verb in play.wording.synonyms:
        assert {one.get(verb) for one in junk} == {*SYNONYMS[verb], None}


@pytest.mark.soak
def test_a_scripted_player_finds_the_words_once_and_one_without_memory_in_every_task(hidden):
    packs = [hidden.sample_pack(split=Split.TEST, index=index, num_tasks=3) for index in range(12)]
    refusals = {}
    success = {}
    for kind in (ConditionKind.SCRIPTED, ConditionKind.MEMORYLESS, ConditionKind.ORACLE):
        lives = list(play_reference(hidden, packs, kind, HintContext()))
        refusals[kind] = [
            sum(hidden.wording.refused(turn.observation) for life in lives for turn in life.solves[n].turns)
            for n in range(3)
        ]
        success[kind] = [sum(life.solves[n].success for life in lives) / len(packs) for n in range(3)]
    assert success[ConditionKind.ORACLE] == [1.0] * 3
    scripted, memoryless = success[ConditionKind.SCRIPTED], success[ConditionKind.MEMORYLESS]
    assert scripted[-1] > max(scripted[0], memoryless[-1]) + 0.15
    assert refusals[ConditionKind.ORACLE] == [0] * 3
    assert refusals[ConditionKind.SCRIPTED][-1] < min(
        refusals[ConditionKind.SCRIPTED][0], refusals[ConditionKind.MEMORYLESS][-1]
    )


@pytest.mark.soak
def test_no_rule_of_the_contract_is_broken_where_words_are_hidden(hidden):
    found = list(check_world(hidden, HintContext(), num_packs=5, pack_size=3))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}
    oracle = next(verdict for verdict in found if verdict.rule.startswith("oracle"))
    assert oracle.remark == "success by position 1.00 1.00 1.00"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_hostile_commands_are_only_refused(hidden, data):
    env = copy.deepcopy(hidden)
    env.reset(options={"task": env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]})
    word = st.sampled_from([word for own in SYNONYMS.values() for word in own])
    rest = st.one_of(
        st.sampled_from(["", "north", "with", "take", "all", ". take all", "north. east", "$&|>"]), st.text()
    )
    for _ in range(env.max_turns):
        before = env._now.typed
        typed = data.draw(st.one_of(st.builds("{} {}".format, word, rest), st.text()))
        _, reward, terminated, truncated, info = env.step(f"<answer>{typed}</answer>")
        assert (reward, info) == (0.0, {})
        assert env._now.typed in (before, (*before, "go north"))
        if terminated or truncated:
            break
    assert terminated or truncated


def test_hidden_commands_in_fused_words_are_refused_with_their_key():
    with pytest.raises(ConfigError, match=r"data\.env\.commands"):
        TextWorldHouse(**COMPACT, commands="hidden")
    with pytest.raises(ConfigError, match=r"data\.env\.commands"):
        TextWorldHouse(commands="secret")
