"""One exception per boundary that something can go wrong at; stdlib only.

`ConfigError` is for the person who typed the config: it names the key, the value, what was expected and the remedy.
`EngineFailure`, `EnvironmentFailure`, `ContextFailure` and `EpisodeTimeout` mark where a failure came from; the rollout turns them
into an episode's status, counts them by the name of their class, and the run goes on.
"""

import asyncio
import contextlib
import difflib
import logging
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

FAULT_LOG = logging.getLogger("cod_lightning.faults")
"""What cost a lifecycle, with its traceback; it goes nowhere by itself."""
FAULT_LOG.propagate = False
FAULT_LOG.addHandler(logging.NullHandler())


class CodLightningError(Exception):
    """Root of this project's own errors."""


class ConfigError(CodLightningError, ValueError):
    """A config value that cannot work, found before any training.

    >>> print(ConfigError("data.group_size", 1, "at least 2, since a baseline compares siblings", "Set it to 8."))
    data.group_size is 1; expected at least 2, since a baseline compares siblings. Set it to 8.
    """

    def __init__(self, key: str, value: object, expected: str, remedy: str) -> None:
        super().__init__(f"{key} is {value}; expected {expected}. {remedy}")
        self.key, self.value, self.expected, self.remedy = key, value, expected, remedy

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, str, str, str]]:
        """It may come from another process."""
        return type(self), (self.key, str(self.value), self.expected, self.remedy)


@contextlib.contextmanager
def answering(refused: Callable[[str], ConfigError], expected: str) -> Iterator[None]:
    """What a part of the config raises becomes `refused(expected)` with what it said, and where; its own `ConfigError` stays, and
    what comes from outside (`ends_the_run`)."""
    try:
        yield
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if isinstance(error, ConfigError) or ends_the_run(error):
            raise
        raise refused(f"{expected} ({said_where(error)})") from error


def said_where(error: BaseException) -> str:
    """What an error says, and where it was raised, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{in_a_line(described(error), 400)}, {frame.filename}:{frame.lineno}"


class EngineFailure(CodLightningError):
    """An engine raised, or could not serve a request."""


class TurnTimeout(EngineFailure):
    """An engine gave no answer within `data.deadlines.turn_s`."""


class BadCompletion(EngineFailure):
    """What an engine returned cannot have been sampled from the policy, given the prompt."""


class EngineMismatch(EngineFailure):
    """After a weight sync an engine's log-probabilities are not those of the trained weights; ends the run."""


class EngineRefused(CodLightningError):
    """An engine, a judge or another endpoint refuses every further request (a wrong key, no such model, its ceiling of tokens is
    reached); ends the run."""


class EnvironmentFailure(CodLightningError):
    """A world raised, or gave what no world may give."""


class RewardFailure(CodLightningError):
    """A part of an episode's reward raised, or is no finite number: the reward is missing."""


class RewardTimeout(RewardFailure):
    """A part of an episode's reward took longer than `data.deadlines.reward_s`."""


class WorldHung(EnvironmentFailure):
    """A world took longer than its worker process is given; the process was killed."""


class WorldDied(EnvironmentFailure):
    """The worker process of a world ended on its own."""


class WorldOutOfMemory(EnvironmentFailure):
    """A world took more memory than its worker process is given."""


class GradingFailed(EnvironmentFailure):
    """An answer could not be graded in its sandbox: it took too long or too much, or ended its process; the reward is missing."""


class ContextFailure(CodLightningError):
    """A context mechanism raised, or gave what no mechanism may give."""


class ForgedRole(CodLightningError):
    """A text would begin or end a message in the policy's prompt, and cannot be broken up so that it does not."""


class EpisodeTimeout(CodLightningError):
    """An episode took longer than `data.deadlines.episode_s`."""


class TooManyFailures(CodLightningError):
    """A rollout lost more of its lifecycles than `data.max_failed_fraction`; ends the run."""


class ScorerFailed(CodLightningError):
    """A scorer raised, or scored too few tokens; ends the run."""


class NonFiniteLoss(CodLightningError):
    """The loss, or its gradient, became NaN or infinite; names the step, and of a loss the file that holds the batch."""


class DataError(CodLightningError):
    """A file that was to be read is missing, foreign or damaged; names the file and the remedy."""


class SaveFailed(CodLightningError):
    """A checkpoint could not be written; those before are as they were. Names the folder, the reason and the remedy."""


class GivenUp(BaseException):
    """The rollout was cancelled; no `Exception`, so that no episode takes it for a fault."""


class ReaderEnded(SystemExit):
    """What the output was piped to, such as `head`, has ended, and the command ends with it."""


class Stopped(SystemExit):
    """A signal asked the run to end, and it did so where it can go on; a `SystemExit`, so that nothing takes it for a failure.

    `code` is 128 plus the signal's number, as a shell has it: 143 for SIGTERM, 130 for SIGINT.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.message = f"Stopped by {signal.Signals(number).name}."
        """The run's last line: how to go on, where that is known."""

    @classmethod
    def at_once(cls, number: int, frame: object) -> NoReturn:
        """A signal's handler that ends what happens now."""
        raise cls(number)


ENDS = ReaderEnded, Stopped, KeyboardInterrupt
"""What ends a run without a word."""


def unless_stopped(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what a task raised that was no longer awaited; a signal that ends the run is its own message."""
    if not isinstance(context.get("exception"), ENDS):
        loop.default_exception_handler(context)


def check_between(key: str, value: float, low: float, high: float, remedy: str) -> None:
    """Raise `ConfigError` unless the value lies in [low, high]; NaN does not."""
    if not low <= value <= high:
        raise ConfigError(key, value, f"in [{low:g}, {high:g}]", remedy)


def check_one_of(key: str, value: str, names: Sequence[str]) -> None:
    """Raise `ConfigError` for another name."""
    if value not in names:
        remedy = did_you_mean(str(value), names) or "Choose one."
        raise ConfigError(key, value, f"one of {some_of(names, str(value))}", remedy.strip())


def did_you_mean(wrong: str, names: Sequence[str], cutoff: float = 0.6) -> str:
    """The sentence that names the nearest of the names, with a space behind it; empty where none is near.

    >>> did_you_mean("levrs", ["doors", "levers"])
    'Did you mean levers? '
    >>> did_you_mean("LEVERS", ["doors", "levers"])
    'Did you mean levers? '
    """
    close = nearest(wrong, names, 1, cutoff)
    return f"Did you mean {close[0]}? " if close else ""


def some_of(names: Sequence[str], wrong: str, most: int = 12) -> str:
    """The names; where there are more than `most`, the four nearest to what was typed and the number of the others.

    >>> some_of(["doors", "levers"], "levrs")
    'doors, levers'
    >>> some_of([f"env_{letter}" for letter in "abcdefgh"], "env_a1", most=6)
    'env_a, env_h, env_g, env_f and 4 more'
    """
    if len(names) <= most:
        return ", ".join(names)
    near = nearest(wrong, names, 4, cutoff=0.0)
    return f"{', '.join(near)} and {len(names) - len(near)} more"


def nearest(wrong: str, names: Sequence[str], count: int, cutoff: float) -> list[str]:
    """Names, the nearest first; that one is in capitals and another is not makes them no less near."""
    lower = {name.lower(): name for name in reversed(names)}
    return [lower[name] for name in difflib.get_close_matches(wrong.lower(), lower, n=count, cutoff=cutoff)]


def in_a_line(said: object, most: int | None = None) -> str:
    """A text, such as an error's message, in one line of so many characters at most.

    >>> in_a_line(ValueError("no\\n  database"), 5)
    'no da'
    """
    return " ".join(str(said).split())[:most]


_LONGEST_MESSAGE = 1_000
"""Characters of an exception's message that are kept."""


def described(error: BaseException) -> str:
    """Class and message of an error, shortened; the message of an exception may itself raise, or be without end."""
    try:
        message = str(error)[:_LONGEST_MESSAGE]
    except BaseException:
        message = "(its message cannot be shown)"
    return f"{type(error).__name__}: {message}"


def note_fault(error: BaseException) -> None:
    """Log the traceback of what cost a lifecycle, to the logger `cod_lightning.faults`."""
    with contextlib.suppress(Exception):  # a hostile error's own doing
        FAULT_LOG.error("%s", described(error), exc_info=error)


def ends_the_run(error: BaseException) -> bool:
    """Whether it comes from outside the rollout: a signal, a cancellation of this task, a key that is refused, a closed pipe."""
    if isinstance(error, asyncio.CancelledError):
        try:
            task = asyncio.current_task()
        except RuntimeError:  # in a thread, which no one cancels
            return False
        return task is not None and task.cancelling() > 0
    if isinstance(error, KeyboardInterrupt):  # within `asyncio.run` Python's own comes from asyncio's signal handler
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        return trace is not None and trace.tb_frame.f_code.co_name == "_on_sigint"
    return isinstance(error, EngineRefused | GivenUp | ReaderEnded | Stopped)
