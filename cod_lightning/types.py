"""Records of experience, from a task to a trainable row; the whole domain in one file, no torch.

    Pack(Task) -> Group(Lifecycle(Episode(Turn))) -> Segment

Letters used everywhere: G packs in a batch, K sibling lifecycles of a pack, N tasks of a pack, E episodes of a lifecycle in
their order (in the paper's lifecycle E = 2N-1); B token rows, T tokens, V vocabulary.

Each record is written once, by one function, and never changed downstream. What rollouts make by the thousand are msgspec structs:
making one takes a tenth of a frozen dataclass's time, sending one to another process two thirds.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Text(Struct, frozen=True, tag="text"):
    """A part of a message in words."""

    text: str


class Image(Struct, frozen=True, tag="image"):
    """A part of a message that is seen."""

    png: bytes
    """The file."""
    alternative: str
    """What stands in its place wherever a message is read as text: in prompts' token ids, contexts and reports."""
    media_type: str = "image/png"
    """Of the file; the only one so far."""


Part = Text | Image
Observation = str | tuple[Part, ...]
"""What an environment shows: text, or parts in their order."""


def text_of(shown: Observation) -> str:
    """The observation as text, the alternative of each image in its place.

    >>> text_of((Text("Map: "), Image(b"", "P _ G")))
    'Map: P _ G'
    """
    if not isinstance(shown, tuple):
        return shown
    return "".join(part.text if isinstance(part, Text) else part.alternative for part in shown)


class Message(Struct, frozen=True):
    """One utterance of a dialogue."""

    role: Role
    content: str
    """As text (`text_of`)."""
    parts: tuple[Part, ...] = ()
    """The same with its images; empty for text alone."""


class Split(StrEnum):
    """Which share of the worlds a pack is drawn from; a world belongs to exactly one."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class EpisodeKind(StrEnum):
    """What an episode is for."""

    SOLVE = "solve"
    """All turns of one task."""
    UPDATE = "update"
    """One rewrite of the context."""
    WRITE = "write"
    """One text before a task for which a program asks, such as a plan, or a proposal of the task."""


class EpisodeStatus(StrEnum):
    """How an episode ended. The first three are the policy's doing and keep their reward; the last two have none."""

    COMPLETED = "completed"
    """It ran to its own end, well or badly."""
    MALFORMED = "malformed"
    """The policy's text did not parse."""
    TRUNCATED = "truncated"
    """The turns, the response length or the policy's window ran out."""
    FAILED = "failed"
    """An engine, a world or a context mechanism raised, or a deadline was over; the reward is missing."""
    SKIPPED = "skipped"
    """It never began, because an earlier episode of the lifecycle failed, or because a control of an evaluation does without
    it; the reward is missing."""


class StopReason(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"
    """A stop token was sampled, or the last token of a string that ends a turn; it is the last action token."""
    LENGTH = "length"
    """`max_new_tokens` were sampled without a stop token."""
    WINDOW = "window"
    """The policy's window was full. With no action tokens at all the prompt itself did not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem of a world."""

    id: str
    seed: int
    spec: object
    """The environment's own frozen dataclass of plain values: all that `reset` needs."""
    repeat: bool = False
    """Whether an earlier task of the pack asked for the same; success in such tasks is logged apart."""
    max_turns: int | None = None
    """Turns of the environment after which the rollout cuts the task off, where that is sooner than it does; None: never."""

    def __post_init__(self) -> None:
        assert isinstance(self.id, str), "an id is no text"
        assert isinstance(self.seed, int), "a seed is no whole number"
        assert isinstance(self.repeat, bool), "repeat is neither true nor false"
        assert isinstance(self.max_turns, int | None), "max_turns is no whole number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """N tasks that share a hidden rule, fixed by `world_seed`, in the order in which they are solved."""

    id: str
    split: Split
    world_seed: int
    tasks: tuple[Task, ...]
    context: str | None = None
    """What its lifecycles begin with, as `ContextMechanism.dump` writes it; None: the empty context."""

    def __post_init__(self) -> None:
        assert isinstance(self.id, str), "an id is no text"
        assert isinstance(self.split, Split), "a split is no Split"
        assert isinstance(self.world_seed, int), "a world_seed is no whole number"
        assert all(isinstance(task, Task) for task in self.tasks), "tasks are no Tasks"

    def __len__(self) -> int:
        """N, the number of tasks."""
        return len(self.tasks)


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine call. Holds what was *added* since the previous turn: whole prompts would grow with the square.

    Worked example, a solve episode of two turns (`s` system, `o` observation, `a` action ids)::

        turn 0   new_ids = s s o o o    extends = False   action_ids = a a     prompt = s s o o o
        turn 1   new_ids = o o          extends = True    action_ids = a a a   prompt = s s o o o a a o o
    """

    new_ids: tuple[int, ...]
    """Prompt ids added since the previous turn (all of them where `extends` is False)."""
    extends: bool
    """True if the prompt is the previous turn's prompt + its action + `new_ids`."""
    action_ids: tuple[int, ...]
    """Ids the policy sampled, the stop token included."""
    behaviour_logprobs: tuple[float, ...]
    """Log-probability (nats) of each action id under the distribution that it was sampled from."""
    stop: StopReason
    policy_version: int
    """Number of weight syncs the engine had seen when it sampled; -1 for a scripted policy."""
    prompt_digest: int
    """CRC-32 of the prompt ids that the engine really conditioned on; segments compare theirs against it."""
    observation: str = ""
    """The text that was put to the policy this turn, for readers."""
    response: str = ""
    """The action as text, special tokens left out, for readers."""
    parts: tuple[Part, ...] = ()
    """Of those messages within `new_ids` that show images, in their order; where none does, empty."""


class EntryEventKind(StrEnum):
    """What an episode had to do with an entry of the context."""

    HELD = "held"
    """It was there before, and nothing earlier is known of it."""
    CAME = "came"
    CHANGED = "changed"
    SHOWN = "shown"
    """The task was shown it, or chose it."""
    GONE = "gone"
    """The episode removed it, or did not let it in."""


class EntryEvent(Struct, frozen=True, array_like=True):
    """One thing that an episode had to do with one entry of the context."""

    kind: EntryEventKind
    key: str
    """Which entry, as its mechanism knows it."""
    text: str = ""
    """What it says from then on; where it is gone, why, if the mechanism removed it by itself."""


class Episode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All turns of one task (solve), one rewrite of the context (update), or one text for which a program asks (write)."""

    kind: EpisodeKind
    position: int
    """0-based index of the task; update n follows solve n, text n comes before it."""
    status: EpisodeStatus
    turns: tuple[Turn, ...] = ()
    reward: float | None = None
    """None exactly when `status` is FAILED or SKIPPED: missing is not 0."""
    success: bool | None = None
    """Solve: whether the task was solved. Update: whether the context parsed. Write: whether it is what was asked for, such as a
    task. None where the reward is missing."""
    feedback: str = ""
    """Solve: the environment's words after the task. Update: why the context did not parse, if so."""
    context_before: str = ""
    """The context that the episode began with, as text for readers."""
    context_after: str = ""
    state_before: Any = None
    """The same as the record that its mechanism owns; plain values, or None, where it was read back from a file."""
    state_after: Any = None
    entries: tuple[EntryEvent, ...] | None = None
    """What it had to do with the entries of the context; None where it was not recorded."""
    error: str = ""
    """What was raised, for FAILED: the name of its class, a colon, its message."""
    repeat: bool = False
    """Solve: whether an earlier task of the pack asked for the same (`Task.repeat`)."""
    reward_hidden: bool = False
    """Solve: whether the environment keeps reward and success from the policy (`Traits.hides_reward`): no context shows them."""
    compared_with: str = ""
    """Its program's name for what it is compared with: episodes of its pack and kind by that name; empty: those at its position,
    for an attempt those that began at the same moment, and the episodes of a name that one of these has."""
    weights: tuple[tuple[int, float], ...] | None = None
    """Of the rewards in its return, where its program says them (`Agent.pay`): index e of an episode of its lifecycle, weight.
    None: those of the credit rule."""
    parts: dict[str, float] = {}
    """What the reward is the sum of, by name, weighted; empty where it is the world's or the context's own alone."""
    parent: int | None = None
    """Of an attempt: index e of the solve episode of its lifecycle from whose beginning it went on. None: no attempt."""
    trained: bool = True
    """Whether updates train on it. An attempt without the lifecycle's context is False: it measures what the context is worth."""

    def __post_init__(self) -> None:
        missing = self.status in (EpisodeStatus.FAILED, EpisodeStatus.SKIPPED)
        assert missing == (self.reward is None), f"a {self.status} episode with reward {self.reward}"

    @property
    def fault(self) -> str:
        """Name of what was raised, under which it is counted; empty where nothing was.

        >>> Episode(kind=EpisodeKind.SOLVE, position=0, status=EpisodeStatus.FAILED, error="WorldHung: no answer").fault
        'WorldHung'
        """
        return self.error.partition(":")[0]

    @property
    def num_action_tokens(self) -> int:
        """Tokens the policy sampled in this episode."""
        return sum(len(turn.action_ids) for turn in self.turns)


class Lifecycle(Struct, frozen=True, kw_only=True):
    """The episodes of one sibling through one pack."""

    pack_id: str
    sibling: int
    episodes: tuple[Episode, ...]
    """Its own E interleaved episodes in their order, then its attempts by position."""

    @property
    def own(self) -> tuple[Episode, ...]:
        """Its episodes without attempts."""
        return tuple(episode for episode in self.episodes if episode.parent is None)

    @property
    def attempts(self) -> tuple[Episode, ...]:
        """Extra solve episodes from snapshots of it: nothing comes after any."""
        return tuple(episode for episode in self.episodes if episode.parent is not None)

    @property
    def solves(self) -> tuple[Episode, ...]:
        """The N solve episodes in order of position."""
        return tuple(episode for episode in self.own if episode.kind is EpisodeKind.SOLVE)

    @property
    def updates(self) -> tuple[Episode, ...]:
        """The update episodes in order of position."""
        return tuple(episode for episode in self.own if episode.kind is EpisodeKind.UPDATE)

    @property
    def failed(self) -> bool:
        """True if an engine or a world failed in one of its own episodes, or its time was over."""
        return any(episode.status is EpisodeStatus.FAILED for episode in self.own)


class Group(Struct, frozen=True, kw_only=True):
    """The K sibling lifecycles of one pack; each other's baseline."""

    pack: Pack
    lifecycles: tuple[Lifecycle, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One token row with one credit key: the turns of an episode whose prompts extend one another, merged.

    The two turns of the example in `Turn` become one row::

        token_ids           s s o o o a a o o a a a
        action_mask         . . . . . 1 1 . . 1 1 1
        behaviour_logprobs  0 0 0 0 0 x x 0 0 x x x
    """

    pack_id: str
    sibling: int
    episode: int
    """Its index in `Lifecycle.episodes`."""
    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    behaviour_logprobs: tuple[float, ...]
    policy_version: int
    """The oldest one among its tokens."""
    images: tuple[Image, ...] = ()
    """Those shown within `token_ids`, which hold their alternatives, in their order; empty for text alone."""
