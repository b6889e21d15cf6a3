"""Single-player games of TextArena: one seed a pack, a generator of its own for each game, and the contract."""

import copy
import itertools
import random
import re

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.types import EpisodeStatus, Split

pytest.importorskip("textarena", reason="pip install -e '.[textarena]'")

from cod_lightning.envs.textarena_world import TextArenaWorld
from tests.cases import each


@pytest.fixture(scope="module")
def mastermind():
    return TextArenaWorld("Mastermind-v0", settings={"max_turns": 8}, max_turns=8)


def guess(code):
    return f"I try. <answer>[{' '.join(map(str, code))}]</answer>"


def solved(env, task, first=None):
    """The code, found by trying any that agrees with all pegs so far, and the number of guesses."""
    env.reset(options={"task": task})
    left = list(itertools.permutations(range(1, 7), 4))
    for number in range(1, 9):
        code = first if number == 1 and first else left[0]
        shown, reward, terminated, truncated, _ = env.step(guess(code))
        if terminated or truncated:
            assert (reward == 1) == env.success
            return code, number
        black, white = map(int, re.search(r"(\d) black peg\(s\), (\d) white", shown).groups())

        def pegs(other, code=code):
            exact = sum(a == b for a, b in zip(other, code, strict=True))
            return exact, len(set(other) & set(code)) - exact

        left = [other for other in left if pegs(other) == (black, white)]
    raise AssertionError("the game went on")


def test_no_rule_of_the_contract_is_broken(mastermind):
    found = list(check_world(mastermind, HintContext(), num_packs=5, pack_size=3))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}


def test_what_is_hidden_stays_the_same_over_a_pack_and_differs_between_packs(mastermind):
    env, codes = copy.deepcopy(mastermind), set()
    for index in range(4):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        code, guesses = solved(env, pack.tasks[0])
        assert guesses > 1 or index > 0
        assert solved(env, pack.tasks[1], first=code) == (code, 1)
        assert (env.success, env.status) == (True, EpisodeStatus.COMPLETED)
        codes.add(code)
    assert len(codes) > 1


def test_a_game_neither_reads_nor_moves_the_global_generator(mastermind):
    pack = mastermind.sample_pack(split=Split.TEST, index=0, num_tasks=1)
    seen = []
    for seed in (1, 2):
        env = copy.deepcopy(mastermind)
        random.seed(seed)
        before = random.getstate()
        env.reset(options={"task": pack.tasks[0]})
        seen.append([env.step(guess(code))[:2] for code in ((1, 2, 3, 4), (3, 4, 5, 6))])
        assert random.getstate() == before
    assert seen[0] == seen[1]


def test_what_the_player_says_is_not_shown_again_and_an_answer_without_tags_is_worth_no_more_than_a_lost_game(
    mastermind,
):
    env = copy.deepcopy(mastermind)
    env.reset(seed=5)
    shown = env.step("<answer>[zebra]</answer>")[0]
    assert "zebra" not in shown
    assert "invalid move" in shown
    _, reward, terminated, _, _ = env.step("<answer>[zebra]</answer>")
    assert (reward, terminated, env.success) == (0.0, True, False)
    env = copy.deepcopy(mastermind)
    env.reset(seed=5)
    assert env.step("[1 2 3 4]")[1:] == (-1.0, True, False, {})
    assert (env.success, env.status) == (False, EpisodeStatus.MALFORMED)


@each("game", ["Countdown-v0", "Cryptarithm-v0"])
def test_a_game_that_records_moves_its_own_way_is_played_too(game):
    env = TextArenaWorld(game)
    env.reset(seed=5)
    shown, *rest = env.step("<answer>[zebra]</answer>")
    assert "zebra" not in shown
    assert rest == [0.0, False, False, {}]
    assert env.step("<answer>[zebra]</answer>")[1:] == (-1.0, True, False, {})


@pytest.mark.slow
def test_in_a_process_of_its_own_it_goes_alike(mastermind):
    remote = ProcessWorld(copy.deepcopy(mastermind), num_workers=1)
    pack = mastermind.sample_pack(split=Split.TRAIN, index=1, num_tasks=1)
    assert solved(remote, pack.tasks[0]) == solved(copy.deepcopy(mastermind), pack.tasks[0])


@each(
    ("game", "settings", "said"),
    [
        ("Chess-v0", {}, r"data\.env\.game"),
        ("NoSuchGame-v0", {}, r"data\.env\.game"),
        ("Mastermind-v0", {"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_a_game_that_is_not_for_one_player_and_a_setting_that_it_does_not_take_are_refused(game, settings, said):
    with pytest.raises(ConfigError, match=said):
        TextArenaWorld(game, settings=settings)


class Unseeded:
    """A game that does not begin alike with equal seeds."""

    begun = itertools.count()

    def reset(self, num_players, seed):
        self.board = f"Board {next(self.begun)}"

    def get_observation(self):
        return 0, [(-1, self.board, None)]


def test_a_game_that_begins_otherwise_with_an_equal_seed_is_refused(monkeypatch):
    monkeypatch.setattr("textarena.make", lambda game, **settings: Unseeded())
    with pytest.raises(ConfigError, match=r"data\.env\.game is Luck-v0"):
        TextArenaWorld("Luck-v0")
