"""The replay buffer: what is stored and replayed, exact rows, bounds, checkpoints, ranks, and a replay that answers wrongly."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import TaskCredit
from cod_lightning.errors import ConfigError
from cod_lightning.methods.asymre import AsymRE
from cod_lightning.methods.self_imitation import SelfImitation
from cod_lightning.methods.signal_replay import SignalReplay
from cod_lightning.objective.batch import collate
from cod_lightning.objective.losses import GRPO
from cod_lightning.rollout.segments import segments_of
from cod_lightning.training import replay as replay_contract
from cod_lightning.training.replay import ReplayedEpisode, drawn
from cod_lightning.training.replay_buffer import ReplayBuffer
from cod_lightning.training.update import plan_update
from tests import records
from tests.cases import each
from tests.credit_tables import credit_table, stamped
from tests.forked import on_two_ranks
from tests.story import Everything, Replayed, assert_goes_on, lives_of, recorded, row_key, same, updates


def test_a_replayed_row_has_the_ids_masks_and_log_probs_of_the_row_that_was_played_and_the_advantage_given():
    made = updates(Replayed(Everything()).stream)
    fresh = Counter(row_key(batch, r) for batch in made for r in range(len(batch)) if not batch.is_replayed[r])
    assert max(fresh.values()) == 1
    seen, known = [], {}
    for batch in made:
        for r in range(len(batch)):
            key = row_key(batch, r)
            advantages = set(batch.token_advantages[r][batch.action_mask[r]].tolist())
            assert len(advantages) == 1
            if batch.is_replayed[r]:
                seen.append(key)
                assert advantages.pop() == pytest.approx(known[key] / 10, abs=1e-7)
            else:
                known[key] = advantages.pop()
    worth = {key for key, advantage in known.items() if abs(advantage) > 1e-6}
    last = {row_key(batch, r) for batch in made[4:] for r in range(len(batch)) if not batch.is_replayed[r]}
    assert set(seen) == worth - last


def test_beside_shuffled_episodes_too_what_is_replayed_joins_the_update_that_it_is_chosen_for():
    story, alone = (updates(Replayed(replay, shuffle_episodes=True).stream) for replay in (Everything(), None))
    for batch, plain in zip(story, alone, strict=True):
        assert batch.episode[~batch.is_replayed].tolist() == plain.episode.tolist()
    assert [bool(batch.is_replayed.any()) for batch in story] == [False, False, True, False, True, False]


def test_packs_without_signal_are_not_stored_though_a_baseline_gives_all_their_episodes_an_advantage():
    story = Replayed(SignalReplay())
    story.credited = Credit(TaskCredit(), AsymRE())
    updates(story.stream)
    assert {one.pack_id for one in story.buffer.stored} == {f"p{n}" for n in range(12) if n % 4 != 3}
    assert [one.of_equals for one in story.buffer.stored] == pytest.approx([0.1] * len(story.buffer.stored))


@each("filtered", [False, True])
def test_the_keys_of_replayed_episodes_are_their_own_and_they_count_in_both_denominators(filtered):
    story = Replayed(Everything(), filtered=filtered)
    batch, keys = (found := updates(story.stream)[2]), found.episode
    of_replayed = set(keys[batch.is_replayed].tolist())
    assert of_replayed
    assert not of_replayed & set(keys[~batch.is_replayed].tolist())
    places = {tuple(place) for place in batch.place[batch.is_replayed].tolist()}
    assert len(of_replayed) == len(places) < int(batch.is_replayed.sum())
    update = plan_update(batch, GRPO(), every_row=False)
    assert batch.is_replayed[update.rows].sum() == batch.is_replayed.sum()
    signal = story.credits[1].packs_with_signal
    kept = [b for b, (g, _, _) in enumerate(batch.place.tolist()) if g >= len(signal) or signal[g] or not filtered]
    assert update.num_action_tokens == int(batch.action_mask[kept].sum())
    assert update.num_episodes == len(set(keys[kept].tolist()))


def test_nothing_of_a_rollout_is_replayed_in_its_updates_and_without_a_replay_all_is_as_it_was():
    made = updates(Replayed(Everything(), rollouts=4).stream)
    for number, batch in enumerate(made):
        assert (batch.policy_version[batch.is_replayed] < number // 2).all()
    story = Replayed(None)
    assert not any(batch.is_replayed.any() for batch in updates(story.stream))
    assert set(story.rollouts.state_dict()) == {"source", "ahead"}
    assert story.of_replay == {}


@pytest.mark.parametrize(
    "replay",
    [
        pytest.param(Everything, marks=pytest.mark.slow),
        pytest.param(lambda: SelfImitation(3, warmup_rollouts=2), marks=pytest.mark.slow),
        SignalReplay,
    ],
    ids=["everything", "imitation", "signal"],
)
@pytest.mark.parametrize(
    "done", [n if n in (1, 6, 9) else pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12)]
)
def test_stopped_after_any_update_the_stream_goes_on_as_if_it_had_not(done, replay):
    assert_goes_on(lambda: Replayed(replay(), passes=2), done, 12)


@each("make", [Everything], slow=[lambda: SelfImitation(3, warmup_rollouts=2), SignalReplay])
def test_two_ranks_store_and_replay_what_one_does_each_row_on_one_of_them_with_its_kind_and_its_own_number(
    tmp_path, make
):
    def act(_):
        story = Replayed(make(), packs=8, updates=2)
        made = updates(story.stream)
        rows = [[(*row_key(b, r), float(b.advantages[r])) for r in range(len(b)) if b.is_replayed[r]] for b in made]
        numbers = [(set(b.episode[b.is_replayed].tolist()), set(b.kinds.tolist())) for b in made]
        return rows, story.rollouts.state_dict()["replay"], len(story.buffer._rows), numbers

    rows, state, num, _ = act(0)
    (first, of_first, num_first, own), (second, of_second, num_second, others) = on_two_ranks(tmp_path, act)
    for (one, kinds), (other, _) in zip(own, others, strict=True):
        assert one.isdisjoint(other)
        assert kinds <= {0}
    assert [sorted(own + other) for own, other in zip(first, second, strict=True)] == [sorted(of) for of in rows]
    assert any(first)
    assert any(second)
    assert num == num_first + num_second
    assert min(num_first, num_second) > 0
    assert same(of_first, of_second)
    assert same(
        {k: v for k, v in state.items() if k not in ("owners", "num_ranks")},
        {k: v for k, v in of_first.items() if k not in ("owners", "num_ranks")},
    )


def test_a_checkpoint_of_two_ranks_goes_on_in_one_and_the_other_way_round(tmp_path):
    def act(number):
        story = Replayed(Everything(), packs=8, updates=2, rollouts=1)
        updates(story.stream)
        return story.rollouts.state_dict()

    state = on_two_ranks(tmp_path, act)[0]
    one = Replayed(Everything(), packs=8, updates=2, rollouts=1)
    one.rollouts.load_state_dict(state)
    assert len(one.buffer._rows) == len(one.buffer.stored) == len(state["replay"]["episodes"])

    def back(_):
        story = Replayed(Everything(), packs=8, updates=2, rollouts=1)
        story.rollouts.load_state_dict(one.rollouts.state_dict())
        return len(story.buffer._rows), len(story.buffer.stored)

    (first, all_first), (second, all_second) = on_two_ranks(tmp_path / "back", back)
    assert all_first == all_second == first + second == len(one.buffer.stored)


class ByWorth(Everything):
    """Later pack numbers are worth more."""

    def worth(self, episode):
        return float(episode.pack_id[1:]) - 1.5


@each(("bound", "value"), [("max_episodes", 5), ("max_tokens", 40)])
def test_beyond_a_bound_the_least_worth_leaves_first(bound, value):
    story = Replayed(ByWorth(**{bound: value}), rollouts=2)
    updates(story.stream)
    kept = list(story.buffer.stored)
    total = len(kept) if bound == "max_episodes" else sum(one.num_tokens for one in kept)
    assert 0 < total <= value
    assert min(int(one.pack_id[1:]) for one in kept) >= 6, "8 packs were played"
    assert story.buffer._rows.keys() == story.buffer.stored.keys()
    assert story.of_replay["replay/stored_episodes"] == len(kept)


@each(("versions", "kept"), [(1, {3, 4, 5}), (2, {8, 10})])
def test_episodes_older_than_the_bound_are_dropped(versions, kept):
    """So many versions from one rollout to the next."""
    story = Replayed(Everything(max_age=2), rollouts=6)
    story.rollouts_begun = lambda: versions * story.stream.num_rollouts
    for number, batch in enumerate(updates(story.stream)):
        ages = versions * (number // 2) - batch.policy_version[batch.is_replayed]
        assert ((ages >= 1) & (ages <= 2)).all()
    assert {one.policy_version for one in story.buffer.stored} == kept


def test_a_rollout_in_which_every_lifecycle_failed_makes_nothing_younger():
    story = Replayed(Everything(), rollouts=2, failing={4, 5, 6, 7})
    assert sum(int(batch.is_replayed.sum()) for batch in updates(story.stream)[2:]) > 0
    assert story.of_replay["replay/age"] == 0


@each("filtered", [False, True])
def test_the_figures_count_action_tokens_that_all_updates_train_on(filtered):
    story = Replayed(Everything(), passes=2, rollouts=2, filtered=filtered)
    made = updates(story.stream)[4:]
    replayed = sum(int(b.action_mask[b.is_replayed].sum()) for b in made)
    whole = sum(int(b.known.sum()) for b in made)
    figures = story.of_replay
    assert figures["replay/replayed_tokens"] == replayed > 0
    assert figures["replay/replayed_share"] == pytest.approx(replayed / whole)
    assert figures["replay/age"] == 1.0
    assert figures["replay/stored_tokens"] == sum(one.num_tokens for one in story.buffer.stored)


@given(st.lists(st.floats(0, 1e3), max_size=30), st.integers(0, 40), st.integers(0, 1000))
def test_a_draw_has_no_item_twice_and_as_many_as_there_are(weights, count, seed):
    found = drawn(range(len(weights)), weights, count, seed)
    assert len(found) == len(set(found)) == min(count, len(weights))
    assert found == drawn(range(len(weights)), weights, count, seed)


def test_a_draw_follows_the_weights():
    counts = Counter(drawn("abc", [1.0, 2.0, 5.0], 1, seed)[0] for seed in range(4000))
    for item, share in zip("abc", (1 / 8, 2 / 8, 5 / 8), strict=True):
        assert counts[item] / 4000 == pytest.approx(share, abs=0.03)


# ------------------------------------------------------------------ what is refused


def answers(**methods):
    """A replay of which these methods are replaced."""
    return type("Wrong", (Everything,), methods)()


@each(
    ("replay", "said"),
    [
        (answers(choose=lambda self, stored, rollout: []), "chooses for each of 2 updates"),
        (answers(choose=lambda self, stored, rollout: [[1], []]), r"answers `choose` \(AttributeError"),
        (
            answers(choose=lambda self, stored, rollout: [[ReplayedEpisode(recorded(), 1.0)], []]),
            r"answers `choose` \(KeyError",
        ),
        (
            answers(choose=lambda self, stored, rollout: [[ReplayedEpisode(one, math.nan) for one in stored], []]),
            "with finite advantages",
        ),
        (answers(worth=lambda self, episode: 1 / 0), r"answers `worth` \(ZeroDivisionError"),
        (answers(observe=lambda self, rollout: [][0]), r"answers `observe` \(IndexError"),
        (answers(metrics=lambda self: {"x": "y"}), r"answers `metrics` \(ValueError"),
    ],
)
def test_a_replay_that_answers_wrongly_ends_the_run_with_key_and_remedy(replay, said):
    with pytest.raises(ConfigError, match=rf"data\.replay is Wrong; expected a replay .*{said}") as error:
        updates(Replayed(replay).stream)
    assert "--ckpt_path auto" in str(error.value)


def test_a_state_that_does_not_load_is_refused_and_another_class_begins_anew():
    story = Replayed(SelfImitation())
    updates(story.stream)
    state = story.rollouts.state_dict()
    other = Replayed(SignalReplay())
    other.rollouts.load_state_dict(state)
    assert not other.buffer.stored
    state["replay"]["state"] = {}
    with pytest.raises(ConfigError, match=r"answers `load_state_dict` \(KeyError: 'returns', .*\)"):
        Replayed(SelfImitation()).rollouts.load_state_dict(state)


def test_the_replay_of_the_guide_replays_the_latest_successes():
    page = (Path(__file__).parents[2] / "docs" / "guides" / "replay.md").read_text()
    made = dict(vars(replay_contract)) | {"Sequence": Sequence}
    exec(page.split("```python\n")[1].split("```")[0], made)
    story = Replayed(made["LastWins"]())
    batches = updates(story.stream)
    assert all(one.advantage > 0 for one in story.buffer.stored)
    assert [len(set(batch.episode[batch.is_replayed].tolist())) for batch in batches] == [0, 0, 2, 2, 2, 2]
    assert set(batches[4].policy_version[batches[4].is_replayed].tolist()) == {1}


def buffer_of(groups, replay):
    """A buffer that has stored the rows of groups of pack 4, these rows, and their credit."""
    credit = Credit(TaskCredit(), GroupMean())(credit_table(groups))
    batch = stamped(credit, collate(segments_of(groups), credit.table, {"p4": 0}, pad_id=0))
    buffer = ReplayBuffer(replay, 5)
    buffer.join(0, batch, credit, [[0]])
    return buffer, batch, credit


@each("versions", [(1, 2), (2, 1), (3, 3)])
def test_an_episode_is_as_old_as_the_oldest_of_its_rows(versions):
    """Weights that changed in flight."""
    whole = lives_of(4, 0)
    turns = [
        structs.replace(turn, policy_version=v)
        for turn, v in zip(whole.lifecycles[1].solves[0].turns, versions, strict=True)
    ]
    first = structs.replace(whole.lifecycles[1].episodes[0], turns=tuple(turns))
    life = structs.replace(whole.lifecycles[1], episodes=(first, *whole.lifecycles[1].episodes[1:]))
    groups = [structs.replace(whole, lifecycles=(whole.lifecycles[0], life, whole.lifecycles[2]))]
    buffer, batch, credit = buffer_of(groups, Everything())
    (found,) = [one for one in buffer.stored if (one.sibling, one.episode) == (1, 0)]
    assert found.policy_version == min(versions)
    joined, _ = buffer.join(1, batch, credit, [[0]])
    rows = joined.is_replayed & (joined.policy_version > 0)
    assert sorted(joined.policy_version[rows].tolist()) == sorted(versions)


def test_a_filtered_pack_of_shuffled_episodes_is_in_an_update_for_the_replay_alone():
    whole, silent = lives_of(4, 0), lives_of(5, 0)
    alike = [
        structs.replace(life, episodes=tuple(structs.replace(one, reward=0.5) for one in life.episodes))
        for life in silent.lifecycles
    ]
    groups, seen = [whole, structs.replace(silent, lifecycles=tuple(alike))], []
    credit = Credit(TaskCredit(), GroupMean(), filtered=True)(credit_table(groups))
    batch = stamped(credit, collate(segments_of(groups), credit.table, {"p4": 0, "p5": 1}, pad_id=0))
    buffer = ReplayBuffer(answers(observe=lambda self, rollout: seen.append(rollout)), 5)
    trained = [entry for entry in range(len(credit.table)) if credit.table.place[entry, 0] == 0]
    _, entries = buffer.join(0, batch, credit, [trained[::2], trained[1::2]])
    assert (seen[0].without_signal, sorted(chain.from_iterable(seen[0].updates))) == ({1}, [0, 1])
    assert entries == [trained[::2], trained[1::2]]


def test_an_attempt_beside_an_episode_is_not_stored_and_shares_no_number_with_what_is_replayed():
    whole = lives_of(4, 0)
    first = whole.lifecycles[0]
    beside = structs.replace(first.episodes[0], parent=0)
    groups = [structs.replace(whole, lifecycles=(records.with_attempts(first, beside), *whole.lifecycles[1:]))]
    buffer, batch, credit = buffer_of(groups, answers(worth=lambda self, episode: 1.0))
    own = batch.rows((~batch.is_attempt).nonzero().squeeze(1))
    assert len(own) < len(batch)
    stored = [row_key(rows, r) for rows in buffer._rows.values() for r in range(len(rows))]
    assert sorted(stored) == sorted(row_key(own, r) for r in range(len(own)))
    assert sum(one.num_tokens for one in buffer.stored) == int(own.lengths.sum())
    joined, _ = buffer.join(1, batch, credit, [[0]])
    replayed, fresh = joined.episode[joined.is_replayed], joined.episode[~joined.is_replayed]
    assert set(replayed.tolist()).isdisjoint(fresh.tolist())


def test_a_recorded_episode_has_the_kind_and_the_position_of_the_one_that_was_played():
    life, other = (records.lifecycle("p4", (True, won), sibling=k) for k, won in enumerate((True, False)))
    groups = [structs.replace(lives_of(4, 0), lifecycles=(life, other))]
    buffer, _, _ = buffer_of(groups, answers(worth=lambda self, episode: 1.0))
    found = {(one.episode, one.kind, one.position) for one in buffer.stored}
    assert sorted(found) == [(e, str(one.kind), one.position) for e, one in enumerate(life.episodes)]


def test_a_replay_sees_the_number_of_each_rollout_from_0_on():
    class Noting(Everything):
        def __init__(self):
            super().__init__()
            self.seen = []

        def observe(self, rollout):
            self.seen.append((rollout.number, {one.rollout for one in rollout.episodes}))

    story = Replayed(Noting(), rollouts=3)
    updates(story.stream)
    assert story.buffer.replay.seen == [(n, {n}) for n in range(3)]
