"""Records of past tasks, of which each task is shown those nearest to it that have served best.

Sources: MemRL (arXiv 2601.03192), which filters memories by similarity and then ranks them by a utility learned from the rewards of
the tasks that used them; Memento (formerly AgentFly, arXiv 2508.16153), a bank of cases with successes and failures;
MUSE (arXiv 2510.08002), which keeps experience from each task. Differs from all three: similarity is BM25 over words unless
an encoder is named, the record is cut out of the episode and not written by a model, and the policy that reads the records is
trained while retrieval is not (Memento trains a network that selects cases, MUSE a model reflects, MemRL freezes its model).
Every record that was shown is credited with the whole reward.
"""

import random
from typing import ClassVar, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import ContextEntry, Entries, Prepared
from cod_lightning.contexts.provenance import Provenance, ProvenancedWords
from cod_lightning.contexts.records import Record, RecordContext, RecordScripted
from cod_lightning.contexts.retrieval import Similarity, best, similarities
from cod_lightning.ranges import Count
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Episode

_ABOUT = "Records of tasks that you solved here before, chosen for this one and shortened."
_UTILITY_WEIGHT = 0.5
"""Weight of worth against similarity, both standardised over the candidates."""
_CANDIDATES = 3
"""With select: utility, times `most` the records nearest to the task, out of which those of the greatest value are shown."""
_LEARNING_RATE = 0.3
"""Of the worth of records: worth += _LEARNING_RATE * (reward - worth)."""
_INITIAL_WORTH = 0.5
"""Of a record that no task was shown."""


class EpisodesState(Struct, frozen=True):
    """Records from the oldest to the newest, and what each is worth."""

    records: tuple[Record, ...] = ()
    worth: tuple[float, ...] = ()
    """[n] moving average of the rewards of the tasks that were shown the record."""
    shown: tuple[int, ...] = ()
    """Indices of the records that the present task was shown."""
    served: tuple[str, ...] = ()
    """Keys of those that the latest task was shown."""
    gone: dict[str, str] = {}
    """Keys of records that the latest task had removed, and why."""
    num_tasks: int = 0
    """Tasks so far, those whose records are gone included."""


class EpisodesEntries(Entries["EpisodesContext"]):
    """The pieces of the records."""

    def entries(self, state: EpisodesState) -> tuple[ContextEntry, ...]:
        """Records by the task that each is of; shown are those that were retrieved."""
        served = {*state.served}
        kept = (ContextEntry(one.key, one.text, one.key in served) for one in state.records)
        return (*kept, *(ContextEntry(key, "", key in served, why) for key, why in state.gone.items()))


class EpisodesScripted(RecordScripted["EpisodesContext"]):
    """How scripted policies write the records."""

    def adopt(self, note: str) -> EpisodesState:
        records = self.of.noted(note)[: self.of.capacity]
        return EpisodesState(records, (_INITIAL_WORTH,) * len(records))


class EpisodesContext(RecordContext):
    """Records of past tasks, retrieved for the task at hand. There are no update episodes, and nothing of it is trained.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        select: By similarity to the first observation alone; by similarity and then by worth (utility); or at random.
        most: Records that a task is shown.
        capacity: Most records; beyond it the one of least worth goes, of equal ones the oldest, never the newest.
        part_tokens: Tokens, about, that each part of a record (first observation, answers, feedback) keeps.
        similarity: How near a record is to the task; null: by the words that they share (BM25).
        provenance: Whether a record is shown with where it comes from: handed over before the first task, or made after which task,
            and whether that one was solved.
    """

    companions = (EpisodesEntries, EpisodesScripted, ProvenancedWords, *RecordContext.companions)

    State: ClassVar[type[Struct]] = EpisodesState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        select: Literal["utility", "similarity", "random"] = "utility",
        most: Count = 4,
        capacity: Count = 1000,
        part_tokens: Count = 128,
        similarity: Similarity | None = None,
        provenance: bool = False,
    ) -> None:
        super().__init__(protocol)
        self.select, self.most = select, most
        self.capacity, self.part_tokens = capacity, part_tokens
        self.similarity, self.provenance = similarity, Provenance(provenance, protocol)

    def text(self, state: EpisodesState) -> str:
        return self.listed(state.records, [f"{worth:.2f} " for worth in state.worth])

    def prepare(self, state: EpisodesState, rules: str, observation: str) -> Prepared:
        """The rules, and the chosen records from the oldest to the newest."""
        shown = tuple(sorted(self._chosen(state, observation)))
        records = [state.records[index] for index in shown]
        served = tuple(record.key for record in records)
        system = self.wording.inject(rules, records, _ABOUT, self.provenance)
        return Prepared(system, replace(state, shown=shown, served=served, gone={}))

    def feedback(self, state: EpisodesState, episode: Episode) -> EpisodesState:
        """The worth of what was shown moves towards the reward unless the environment hides it, and the task becomes a record."""
        reward, rate = episode.reward or 0.0, 0.0 if episode.reward_hidden else _LEARNING_RATE
        worth = [w + rate * (reward - w) if i in state.shown else w for i, w in enumerate(state.worth)]
        record = self.wording.record(episode, state.num_tasks, self.part_tokens)
        records, worth = [*state.records, record], [*worth, _INITIAL_WORTH]
        gone: dict[str, str] = {}
        if len(records) > self.capacity:
            least = worth.index(min(worth[:-1]))
            gone[records[least].key] = f"over the capacity of {self.capacity} records; worth least, {worth[least]:.2f}"
            del records[least], worth[least]
        num_tasks = state.num_tasks + 1
        return EpisodesState(tuple(records), tuple(worth), num_tasks=num_tasks, served=state.served, gone=gone)

    def _chosen(self, state: EpisodesState, observation: str) -> list[int]:
        """Indices of the records to show."""
        number = len(state.records)
        if number <= self.most:
            return list(range(number))
        if self.select == "random":
            return random.Random(derive_seed("random records", observation, number)).sample(range(number), self.most)
        scores = similarities if self.similarity is None else self.similarity.scores
        similar = scores(state.records, lambda record: record.text, observation)  # pyright: ignore
        if self.select == "similarity":
            return best(similar, self.most)
        near = best(similar, _CANDIDATES * self.most)
        worth = np.array([state.worth[index] for index in near])
        value = (1 - _UTILITY_WEIGHT) * _standard(similar[near]) + _UTILITY_WEIGHT * _standard(worth)
        order = sorted(range(len(near)), key=lambda place: (-value[place], place))
        return [near[place] for place in order[: self.most]]


def _standard(values: np.ndarray) -> np.ndarray:
    """Values with mean 0 and standard deviation 1; zeros where all are equal."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-6 else np.zeros_like(values)
