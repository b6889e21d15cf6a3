"""Mechanisms of records: what becomes of a task, what the next one is shown, and that nothing in a record can pass for more."""

import re
import sys
from types import SimpleNamespace

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonargparse import ArgumentParser

from cod_lightning.contexts.base import ContextMechanism, Stored
from cod_lightning.contexts.records import Record
from cod_lightning.contexts.retrieval import Similarity, best, similarities, words_of
from cod_lightning.envs.base import Reference, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.controls import oracle_contexts
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.methods.episodes import EpisodesContext, EpisodesState
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.types import EpisodeKind, Split
from tests.cases import each
from tests.command_line import ROOT
from tests.lived_tasks import lived, shown, solved
from tests.word_play import first_packs, scripted

PROTOCOLS = each("protocol", ["natural", "compact"])
KINDS = each("kind", [EpisodesContext, TranscriptContext])


def positions(context, state, observation):
    return [state.records[index].position for index in context.prepare(state, "", observation).state.shown]


@KINDS
@PROTOCOLS
def test_the_first_task_sees_the_rules_alone_and_a_later_one_what_came_before(kind, protocol):
    context = kind(protocol)
    assert shown(context, context.empty(), "a") == "RULES"
    text = shown(context, lived(context, ("want x", 1.0)), "want y")
    assert text.startswith("RULES")
    assert text.index("want x") < text.index("end of want x")


@KINDS
def test_no_update_is_played_the_last_state_has_every_task_and_the_oracles_first_is_the_context_of_that_control(kind):
    env, context = Levers(), kind()
    (group,) = scripted(env, context, num_siblings=2, num_tasks=4, split=Split.TEST)
    for life in group.lifecycles:
        assert [episode.kind for episode in life.episodes] == [EpisodeKind.SOLVE] * 4
        assert len(life.solves[-1].state_after.records) == 4
        assert life.solves[1].state_before == life.solves[0].state_after
    for contexts in oracle_contexts(env, first_packs(env, 2, 3, Split.TEST), context):
        assert [len(state.records) for state in contexts] == [1, 1, 1]


@KINDS
@pytest.mark.parametrize("protocol", ["natural", pytest.param("compact", marks=pytest.mark.slow)])
def test_scripted_play_gets_better_with_what_it_is_shown(kind, protocol):
    env = Levers(protocol=protocol)
    packs = first_packs(env, 25, 4, Split.TEST)
    row = summarise(list(play_reference(env, packs, Reference.SCRIPTED, kind(protocol))))
    assert (row.num_failed, row.num_malformed) == (0, 0)
    assert row.success[0].mean < 0.7
    assert row.success[-1].mean > 0.9


@pytest.mark.slow
def test_retrieval_pays_where_there_are_more_facts_than_a_task_is_shown():
    env = Doors(num_doors=32, protocol="compact")
    packs = first_packs(env, 8, 64, Split.TEST)
    last = {}
    for select in ("similarity", "random"):
        context = EpisodesContext("compact", select=select, most=2)
        row = summarise(list(play_reference(env, packs, Reference.SCRIPTED, context)))
        last[select] = np.mean([one.mean for one in row.success[32:]])
    assert last["similarity"] > last["random"] + 0.15


def test_a_similarity_from_elsewhere_takes_the_place_of_shared_words():
    class ByLength(Similarity):
        def scores(self, entries, text, query):
            return np.array([-abs(len(text(entry)) - len(query)) for entry in entries], np.float32)

    records = tuple(Record(n, word, "", "") for n, word in enumerate(("red door", "blue", "a green lamp")))
    state = EpisodesState(records, (0.5,) * 3, num_tasks=3)
    context = EpisodesContext(select="similarity", most=1, similarity=ByLength())
    assert context.prepare(state, "rules", "").state.shown == (1,)


def test_the_encoder_of_the_guide_is_chosen_by_its_name(tmp_path, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/memories.md").read_text(), re.DOTALL)
    (tmp_path / "encoders.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    encoded = SimpleNamespace(
        encode=lambda one: np.array([len(one)] if isinstance(one, str) else [[len(x)] for x in one])
    )
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=lambda path: encoded))
    parser = ArgumentParser()
    parser.add_argument("--context", type=ContextMechanism)
    name = f"{EpisodesContext.__module__}.{EpisodesContext.__name__}"
    typed = ["--context", name, "--context.similarity", "encoders.Encoder", "--context.similarity.path", "any"]
    similarity = parser.instantiate_classes(parser.parse_args(typed)).context.similarity
    assert similarity.scores(("a", "bcd"), str, "xy").tolist() == [2, 6]


def test_similarity_shows_what_shares_words_of_equal_ones_the_newest_and_of_nothing_nothing():
    context = EpisodesContext(select="similarity", most=2)
    state = lived(context, ("blue door", 0.0), ("red lamp", 0.0), ("red boat", 0.0), ("green cup", 0.0))
    assert positions(context, state, "red") == [1, 2]
    assert positions(context, state, "nothing of that") in ([2, 3], [0, 3])  # "of" is in every feedback
    assert similarities((), str, "red").tolist() == []


def test_random_records_are_the_same_for_the_same_task_and_differ_between_tasks():
    context = EpisodesContext(select="random", most=2)
    state = lived(context, *((f"task {n}", 0.0) for n in range(12)))
    assert positions(context, state, "x") == positions(context, state, "x")
    assert len({tuple(positions(context, state, f"task {n}")) for n in range(20)}) > 5


def test_worth_moves_towards_the_rewards_of_the_tasks_that_were_shown_a_record_and_no_other():
    context = EpisodesContext(select="similarity", most=1)
    state = lived(context, ("red", 0.5), ("blue", 0.5))
    state = lived(context, ("red again", 1.0), state=state)
    assert state.worth == pytest.approx((0.65, 0.5, 0.5))
    assert lived(context, ("blue", 1.0), state=state).worth == pytest.approx((0.65, 0.65, 0.5, 0.5))


def test_of_equally_similar_records_the_one_that_served_better_is_shown():
    context = EpisodesContext(select="utility", most=1)
    records = tuple(Record(n, "red", "", "end", 0.0) for n in range(3))
    state = EpisodesState(records, (0.1, 0.9, 0.5), num_tasks=3)
    assert context.prepare(state, "", "red").state.shown == (1,)
    assert EpisodesContext(select="similarity", most=1).prepare(state, "", "red").state.shown == (2,)


@each(("candidates", "weight", "chosen"), [(1, 0.5, 0), (2, 0.4, 0), (2, 0.6, 1)])
def test_worth_chooses_among_the_similar_alone_and_counts_as_much_as_its_weight(
    monkeypatch, candidates, weight, chosen
):
    monkeypatch.setattr("cod_lightning.methods.episodes._CANDIDATES", candidates)
    monkeypatch.setattr("cod_lightning.methods.episodes._UTILITY_WEIGHT", weight)
    context = EpisodesContext(select="utility", most=1)
    state = EpisodesState((Record(0, "red", "", ""), Record(1, "blue", "", "")), (0.0, 1.0), num_tasks=2)
    assert context.prepare(state, "", "red").state.shown == (chosen,)


def test_beyond_its_capacity_the_record_of_least_worth_goes_and_of_equal_ones_the_oldest():
    context = EpisodesContext(capacity=3)
    state = lived(context, ("a", 0.0), ("b", 0.0), ("c", 0.0))
    state = EpisodesState(state.records, (0.5, 0.2, 0.2), num_tasks=3)
    after = lived(context, ("d", 0.2), state=beside(context, Stored).load(beside(context, Stored).dump(state)))
    assert [record.task for record in after.records] == ["a", "c", "d"]
    assert after.num_tasks == 4
    worst_last = lived(context, ("d", 0.2), state=EpisodesState(state.records, (0.5, 0.3, 0.2), num_tasks=3))
    assert [record.task for record in worst_last.records] == ["a", "b", "d"]


@PROTOCOLS
def test_a_shortened_record_keeps_to_its_tokens_whatever_the_episode_was(protocol):
    context = EpisodesContext(protocol, part_tokens=16)
    episode = solved(*["long " * 3000] * 5, feedback="end " * 3000)
    (record,) = context.feedback(context.empty(), episode).records
    assert max(map(context.wording.size, (record.task, record.feedback))) <= 20
    assert context.wording.size(record.done) <= 9 * 12


@KINDS
@PROTOCOLS
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=6), reward=st.floats(0, 1))
def test_any_texts_become_records_that_are_dumped_and_shown(kind, protocol, texts, reward):
    context = kind(protocol)
    state = lived(context, *((text.encode(errors="replace").decode(), reward) for text in texts))
    assert beside(context, Stored).load(beside(context, Stored).dump(state)) == state
    assert shown(context, state, texts[0]).startswith("RULES")
    assert len(context.text(state).splitlines()) == len(state.records)


TEXTS = st.lists(st.sampled_from(["red", "green", "blue", "gold", "cup"]), max_size=6).map(" ".join)


def by_the_library(texts, query):
    """`bm25s` on an index that is made anew."""
    index = bm25s.BM25()
    index.index([words_of(text) or [""] for text in texts], show_progress=False)
    known = [word for word in words_of(query) if word in index.vocab_dict]
    return index.get_scores(known) if known else np.zeros(len(texts), dtype=np.float32)


@given(
    entries=st.lists(TEXTS, min_size=1, max_size=20).map(tuple),
    query=st.lists(st.sampled_from(["red", "green", "lamp"]), max_size=4).map(" ".join),
)
def test_similarity_is_the_library_s_bm25(entries, query):
    assert similarities(entries, str, query).tolist() == by_the_library(entries, query).tolist()


@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=8), most=st.integers(1, 5))
def test_the_best_are_in_order_and_of_equal_scores_the_later_comes_first(scores, most):
    assert best(scores, most) == sorted(range(len(scores)), key=lambda i: (-scores[i], -i))[:most]
