"""From packs to updates: passes, packs that are replaced, and where a run stops and goes on."""

import math
import random
from dataclasses import replace
from functools import partial
from itertools import chain

import pytest
import torch

from cod_lightning.credit.credited import Credited
from cod_lightning.errors import ConfigError
from cod_lightning.methods import revisits
from cod_lightning.methods.bandit import Bandit
from cod_lightning.methods.revisits import Revisits
from cod_lightning.ranks import check_shares
from cod_lightning.seeds import derive_seed
from cod_lightning.training.packs import PackChoice, PackSource, Uniform
from cod_lightning.types import Group, Lifecycle
from tests import records
from tests.cases import each
from tests.credit_tables import plain_credit
from tests.forked import on_two_ranks
from tests.story import Story, assert_goes_on, updates

SIBLINGS = 2


def played(of):
    """Two lifecycles of one solve episode; the token says which pack it was."""
    number = of.world_seed

    def life(k):
        new_ids = (1,) * (1 + number % 3)
        turn = records.turn(new_ids=new_ids, action_ids=(number,), logprobs=(-0.5,), policy_version=1)
        solve = records.episode(turns=(turn,), reward=float(number))
        return Lifecycle(pack_id=of.id, sibling=k, episodes=(solve,))

    return Group(pack=of, lifecycles=tuple(map(life, range(SIBLINGS))))


class Learner(PackSource):
    """Goes on after the pack of the largest number that it has seen."""

    def __init__(self):
        self.calls, self.last = [], -1

    def next(self, first, count):
        self.calls.append(("next", first, count))
        return [PackChoice(self.last + 1 + first + i) for i in range(count)]

    def observe(self, outcomes):
        numbers = [choice.index for choice in outcomes.choices]
        assert outcomes.credit.table.solved()[0][:, 0, 0].tolist() == numbers
        self.calls.append(("observe", numbers, outcomes.credit.packs_with_signal.tolist()))
        self.last = max(numbers)

    def state_dict(self):
        return {"last": self.last}

    def load_state_dict(self, state_dict):
        self.last = state_dict["last"]

    def metrics(self):
        return {"last": self.last}


class Numbered(Story):
    """Packs without signal are listed, and what was played is kept."""

    siblings = SIBLINGS

    def __init__(self, silent=(), compares=False, **options):
        self.silent, self.compares, self.rounds = silent, compares, []
        super().__init__(**options)

    def played(self, packs):
        self.rounds.append([one.world_seed for one in packs])
        return list(map(played, packs))

    def credited(self, table):
        """By the number of the pack, which is its reward."""
        signal = torch.tensor([int(number) not in self.silent for number in table.solved()[0][:, 0, 0]])
        return plain_credit(signal.float()[:, None, None].expand(-1, SIBLINGS, 1), table=table)


def packs_of(batch):
    """Which packs an update is made of, by the one token of each row."""
    return sorted(set(batch.token_ids[batch.action_mask].tolist()))


def test_every_pass_goes_over_every_pack_once_in_an_order_of_its_own():
    story = Numbered(packs=8, updates=4, passes=3)
    made = updates(story.stream)
    assert len(made) == len(story.stream) == 2 * 4 * 3
    orders = []
    for rollout in range(2):
        for number in range(3):
            start = 12 * rollout + 4 * number
            order = [packs_of(batch) for batch in made[start : start + 4]]
            assert sorted(chain.from_iterable(order)) == list(range(8 * rollout, 8 * rollout + 8))
            orders.append([[n - 8 * rollout for n in share] for share in order])
    assert orders[0] == orders[3] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len({str(order) for order in orders}) == 5
    assert story.rounds == [list(range(8)), list(range(8, 16))]


def test_shuffled_episodes_are_dealt_out_to_the_updates_of_a_pass_by_the_seed_of_the_pass():
    story = Numbered(packs=5, updates=5, passes=2, seed=7, shuffle_episodes=True)
    made = [batch.episode.tolist() for batch in updates(story.stream)]
    for rollout in range(2):
        for number in range(2):
            order = list(range(5 * SIBLINGS))
            random.Random(derive_seed("pass", 7, rollout, number)).shuffle(order)
            start = 10 * rollout + 5 * number
            assert made[start : start + 5] == [sorted(order[2 * u : 2 * u + 2]) for u in range(5)]
    assert any(len({entry // SIBLINGS for entry in entries}) > 1 for entries in made)


def test_shuffled_episodes_need_no_number_of_packs_that_updates_divide():
    story = Numbered(packs=5, updates=3, shuffle_episodes=True)
    made = [batch.episode.tolist() for batch in updates(story.stream)]
    assert [len(of) for of in made[:3]] == [3, 3, 4]
    assert sorted(chain.from_iterable(made[:3])) == list(range(5 * SIBLINGS))
    assert story.rollouts.num_shares == 1
    check_shares(5, story.rollouts.num_shares, 5)


def test_of_shuffled_episodes_an_update_takes_so_many_and_the_last_of_a_pass_what_is_left():
    made = updates(Numbered(packs=5, updates=3, passes=2, shuffle_episodes=4).stream)
    assert [len(batch.episode) for batch in made] == [4, 4, 2] * 4


@pytest.mark.parametrize("size", [1, 3, 5])
def test_shuffled_episodes_that_would_leave_an_update_empty_or_some_over_are_dealt_out_evenly(size):
    made, evenly = (updates(Numbered(packs=5, updates=3, shuffle_episodes=one).stream) for one in (size, True))
    assert [batch.episode.tolist() for batch in made] == [batch.episode.tolist() for batch in evenly]


def test_shuffled_episodes_come_with_those_that_the_loss_compares_them_with():
    made = [
        batch.siblings.tolist()
        for batch in updates(Numbered(packs=6, updates=3, shuffle_episodes=True, compares=True).stream)
    ]
    assert sorted(chain.from_iterable(made[:3])) == [sibling for sibling in range(6) for _ in range(SIBLINGS)]
    assert all(siblings.count(one) == SIBLINGS for siblings in made for one in siblings)
    assert made[:3] != [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]


def test_shuffled_episodes_without_an_advantage_are_in_no_update_and_the_others_are_dealt_out_evenly(monkeypatch):
    story = Numbered(packs=8, updates=4, shuffle_episodes=True)
    known = Credited.advantages.fget
    monkeypatch.setattr(
        Credited, "advantages", property(lambda self: known(self).index_fill(0, torch.tensor([3, 4, 5]), math.nan))
    )
    made = [batch.episode.tolist() for batch in updates(story.stream)][:4]
    assert sorted(chain.from_iterable(made)) == [0, 1, 2, *range(6, 16)]
    assert sorted(map(len, made)) == [3, 3, 3, 4]


@pytest.mark.parametrize("shuffle", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("source", [Uniform, Learner, Bandit, Revisits])
@pytest.mark.parametrize(
    "done", [n if n in (3, 8, 14) else pytest.param(n, marks=pytest.mark.slow) for n in range(1, 16)]
)
def test_stopped_after_any_update_the_stream_goes_on_as_if_it_had_not(done, source, shuffle):
    options = {"silent": (1, 4, 9), "passes": 2, "updates": 2, "resample_packs": 1, "shuffle_episodes": shuffle}
    assert_goes_on(lambda: Numbered(**options, source=source()), done, 16)


def test_a_source_chooses_after_it_has_seen_all_earlier_rollouts_packs_that_were_replaced_too():
    source = Learner()
    updates(Numbered(silent=(1, 3), packs=3, updates=1, resample_packs=2, source=source).stream)
    assert source.calls == [
        ("next", 0, 3),
        ("next", 3, 1),  # in place of 1
        ("next", 4, 1),  # in place of 3
        ("observe", [0, 2, 4, 1, 3], [True, True, True, False, False]),
        ("next", 5, 3),
        ("observe", [10, 11, 12], [True, True, True]),
    ]


@each(("make", "resample"), [(Bandit, 2), (partial(Revisits, by="failure", back="continued"), 2)], slow=[(Bandit, 0)])
def test_two_ranks_choose_the_packs_that_one_does_from_the_rewards_of_both(tmp_path, resample, make, monkeypatch):
    monkeypatch.setattr(revisits, "SOLVED", (0.0, 0.75))  # so that packs of number 0 come back

    def act(_: int):
        story = Numbered(silent=(1, 4, 6), packs=4, updates=2, resample_packs=resample, source=make())
        updates(story.stream)
        source = [{k: v for k, v in of.items() if k.startswith("source/")} for of in story.figures]
        return story.rounds, story.rollouts.state_dict()["source"], source

    rounds, *known = act(0)
    (first, *of_first), (second, *of_second) = on_two_ranks(tmp_path, act)
    assert of_first == of_second == known
    assert [sorted(own + other) for own, other in zip(first, second, strict=True)] == rounds


class ComesBack(PackSource):
    """The first of the packs that it names is always the same one."""

    def next(self, first, count):
        return [PackChoice(0), *(PackChoice(first + i) for i in range(1, count))]


def test_a_pack_that_replaces_another_is_none_that_the_rollout_has_since_rows_find_their_credit_by_its_id():
    assert updates(Numbered(source=ComesBack()).stream), "from rollout to rollout packs may come back"
    with pytest.raises(ConfigError, match=r"data\.source is ComesBack; .*different packs for one rollout"):
        updates(Numbered(silent=(1, 3), resample_packs=2, source=ComesBack()).stream)


class Collapses(Learner):
    """In its second rollout it names no pack."""

    def next(self, first, count):
        return super().next(first, count) if not first else []


def test_a_source_that_names_no_pack_loses_nothing_of_what_was_made_before():
    story, made = Numbered(packs=4, updates=2, source=Collapses()), []
    with pytest.raises(ConfigError, match=r"data\.source is Collapses"):
        made += (sealed.item for sealed in story.stream)
    assert (story.stream.num_rollouts, story.stream.num_packs, len(made)) == (1, 4, 2)
    assert story.rollouts.state_dict()["source"]["state"] == {"last": 3}


def test_a_checkpoint_holds_every_row_that_is_still_needed_once():
    story = Numbered(packs=4, updates=2, passes=3)
    rows = {}
    iterator = iter(story.stream)
    for done in range(1, 7):
        next(iterator)
        saved = story.stream.saved()
        rows[done] = 0 if saved["batch"] is None else len(saved["batch"]["token_ids"])
    assert rows == {1: 8, 2: 8, 3: 8, 4: 8, 5: 4, 6: 0}


@each(
    ("silent", "resample", "rounds", "kept"),
    [
        ((1, 2, 4), 3, [[0, 1, 2, 3], [4, 5], [6], [7, 8, 9, 10]], [[0, 3], [5, 6]]),
        (range(100), 2, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]], [[0, 1], [2, 3]]),
    ],
)
def test_packs_without_signal_are_replaced_by_further_ones_and_after_the_last_round_fill_what_is_missing(
    silent, resample, rounds, kept
):
    story = Numbered(silent=silent, resample_packs=resample)
    first = updates(story.stream)[:2]
    assert story.rounds[:4] == rounds, "the next rollout begins with the first pack that was not played"
    assert [packs_of(batch) for batch in first] == kept


def test_all_is_credited_once_for_a_rollout_and_log_probs_are_asked_for_once_before_its_first_update():
    story, calls = Numbered(packs=4, updates=2, passes=2), []

    def score(rows, played, num_updates):
        tilted = rows.token_ids[rows.action_mask] + 0.5
        calls.append(("score", len(rows), num_updates, rows.advantages.equal(tilted)))
        return rows

    def credited(table):
        calls.append(("credited", table.num_packs))
        found = plain_credit(table.solved()[0], table=table)
        return replace(found, tilted=found.values + 0.5)

    story.credited, story.score = credited, score
    assert len(updates(story.stream)) == 8
    assert calls == [("credited", 4), ("score", 8, 4, True)] * 2


@each(("source", "replaced"), [(Uniform(), []), (Learner(), [("credited", [1, 3])])])
def test_every_pack_is_credited_once_and_a_round_asks_only_which_have_a_signal(source, replaced):
    story, calls = Numbered(rollouts=1, silent=(1, 3), packs=3, updates=1, resample_packs=2, source=source), []

    def noted(name):
        def of(table):
            calls.append((name, table.solved()[0][:, 0, 0].tolist()))
            return Numbered.credited(story, table)

        return of

    story.compared, story.credited = noted("compared"), noted("credited")
    updates(story.stream)
    compared = [("compared", numbers) for numbers in ([0, 1, 2], [3], [4])]
    assert calls == [*compared, ("credited", [0, 2, 4]), *replaced]
