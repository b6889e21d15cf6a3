"""`play`: a pack in the terminal. You are the policy: you solve, and between tasks you rewrite your own context."""

import copy
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cod_lightning.commands.parser import SplitName
from cod_lightning.commands.shown import panel, readable, records
from cod_lightning.commands.worlds import mechanism_for, packs_of, parse_world, reference_of, world_parser
from cod_lightning.contexts import ContextMechanism
from cod_lightning.envs.base import Reference, TextEnv, TextPolicy, Tools, Vocabulary, beside
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.envs.for_people import ForPeople
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import check_at_least, some_of
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import RolloutMonitor, Setting
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Message, Pack, Split


def run(argv: Sequence[str]) -> int:
    """Play one pack."""
    parser = world_parser("play", "Play a pack in the terminal, or watch a reference policy play it.")
    parser.add_argument("--num_tasks", type=int, default=4, help="N, tasks of the pack.")
    parser.add_argument("--split", type=SplitName, default="test", help="Share of the worlds the pack is drawn from.")
    parser.add_argument("--index", type=int | None, default=None, help="Which pack, from 0 on; null draws one.")
    who = Literal["you", "random", "scripted", "oracle"]
    parser.add_argument("--policy", type=who, default="you", help="Who plays.")
    text = "How the context is kept, by class path; null: a hint, rewritten whole."
    parser.add_subclass_arguments(ContextMechanism, "context", required=False, help=text)
    text = "Watch this checkpoint of a run play; its config names world and context. See `play --ckpt_path X --help`."
    parser.add_argument("--ckpt_path", type=str | None, default=None, help=text)
    options = parse_world(parser, argv)
    check_num_tasks("--num_tasks", options.num_tasks)
    check_at_least("--index", options.index, 0, "Null draws one.")
    index = random.SystemRandom().randrange(10_000) if options.index is None else options.index
    (pack,) = packs_of(options.env, Split(options.split), [index], options.num_tasks)
    console, mechanism = Screen(), options.context or mechanism_for(options.env)
    if options.policy == "you":
        policy: TextPolicy = Person(console, partial(_typed, console), beside(options.env, Vocabulary).words())
    else:
        policy = Watched(console, reference_of(options.env, Reference(options.policy), pack))
    console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden. Ctrl-D ends the game.")
    game = Game(options.env, pack, policy, mechanism, console, seed=index)
    game.play()
    return int(game.failed)


def _typed(console: Console, prompt: str) -> str:
    """A line of text, which is shown where no terminal has; EOFError where the input ends, or is closed."""
    if sys.stdin is None:
        raise EOFError
    typed = console.input(prompt).encode(errors="replace").decode()
    if not sys.stdin.isatty():
        console.print(Text(typed))
    return typed


class Person(TextPolicy):
    """Types. Raises EOFError where the input ends."""

    people: ForPeople[Any]
    """Of the environment as it is played; the game sets it."""

    def __init__(self, console: Console, read: Callable[[str], str], words: Sequence[str] = ()) -> None:
        self.console, self.read = console, read
        self.forms = [word[8:-9] for word in words if re.fullmatch(r"<answer>.*</answer>", word)]

    @property
    def about(self) -> str:
        """What to type."""
        one_of = f"Answers are {some_of(self.forms, self.forms[0])}; the last part will do." if self.forms else ""
        return one_of or self.people.about

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was typed; put into answer tags if the world asks for them and the person did not type them."""
        typed = _one_of(self.forms, _in_form(self._response(), messages[0].content))
        wants_tags = "<answer>" in messages[0].content or not messages[0].content.strip().count(" ")
        return f"<answer>{typed.strip()}</answer>" if wants_tags and "<answer>" not in typed else typed

    def _response(self) -> str:
        """Lines up to where they make one."""
        lines: list[str] = []
        while True:
            line = self.read("... " if lines else "your answer> ")
            if not lines and not line.strip():
                continue
            lines.append(line)
            try:
                meant = self.people.meant(lines)
            except ValueError as error:
                self.console.print(Text(str(error), "yellow"))
                lines = []
                continue
            if meant is not None:
                return meant

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Lines up to an empty one; nothing at all keeps the old context."""
        self.console.print("Rewrite your notes; an empty line ends them, and nothing at all keeps the old ones.")
        lines: list[str] = []
        while line := self.read("notes> "):
            lines.append(line)
        return "\n".join(lines)


def _in_form(typed: str, rules: str) -> str:
    """A bare answer in the form that the rules ask for: `2` or `pull 2` where they say `<answer>Lever X</answer>`."""
    (form, *_) = [*re.findall(r"<answer>([^<>]*)</answer>", rules), ""]
    fixed = {word for word in form.split() if not re.fullmatch(r"[A-Z]+", word)}
    free, words = len(form.split()) - len(fixed), typed.split()
    if not words or free != 1 or not fixed or "<" in typed or fixed & set(words):
        return typed
    return " ".join(word if word in fixed else words[-1] for word in form.split())


def _one_of(forms: Sequence[str], typed: str) -> str:
    """The only answer of a closed vocabulary that ends with what was typed: `2` or `pull 2` where one is `Lever_2`."""
    last = (typed.lower().split() or [""])[-1]
    meant = [form for form in forms if last in (form.lower(), re.split("[_=]", form.lower())[-1])]
    return meant[0] if len(meant) == 1 else typed


class Watched(TextPolicy):
    """A reference policy that shows what it answers."""

    def __init__(self, console: Console, policy: TextPolicy) -> None:
        self.console, self.policy = console, policy

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        answer = self.policy.act(messages, rng)
        self.console.print(Text.assemble(("policy>", "bold"), f" {answer}"))
        return answer

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.policy.note(messages, rng)


class PlayedWorld(WrappedWorld):
    """An environment of which the game sees the copy that is played."""

    def __init__(self, world: TextEnv) -> None:
        super().__init__(world)
        self.copies = [world]

    def __deepcopy__(self, memo: dict[int, Any]) -> "PlayedWorld":
        twin = copy.copy(self)
        twin.world = copy.deepcopy(self.world, memo)
        self.copies.append(twin.world)
        return twin


class Game(RolloutMonitor, TextPolicy):
    """One lifecycle with a screen, by the loop that rolls out a model's: the player is an engine."""

    def __init__(
        self,
        env: TextEnv,
        pack: Pack,
        policy: TextPolicy,
        mechanism: ContextMechanism,
        console: Console,
        seed: int = 0,
    ) -> None:
        self.env, self.pack, self.policy, self.mechanism = PlayedWorld(env), pack, policy, mechanism
        self.console, self.seed = console, seed
        self.solved: list[Episode] = []
        self._error = ""

    @property
    def people(self) -> ForPeople[Any]:
        """Of the copy that is played."""
        return beside(self.env.copies[-1], ForPeople)

    @property
    def failed(self) -> bool:
        """Whether the world or the policy raised; that the input ends is no failure."""
        return bool(self._error) and "EOFError" not in self._error

    def play(self) -> list[Episode]:
        """All tasks, then the rewards by position; ends early where the input does."""
        sampler = scripted_sampler(self, self.mechanism, self.seed)
        setting = Setting(env=self.env, mechanism=self.mechanism, sampler=sampler, monitor=self)
        run_groups([self.pack], 1, setting)
        if self._error:
            failed = f"\nThe lifecycle failed: {self._error}. `check` says where."
            self.console.print(failed if self.failed else "\nStopped.", markup=False)
        if self.solved:
            self.console.print(rewards(self.solved))
        return self.solved

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        if len(messages) == 2:
            self.console.print(Rule(f"task {len(self.solved) + 1} of {len(self.pack)}"))
            if not self.solved:
                self._begin(messages[0].content)
        if isinstance(self.policy, Person):
            self.policy.people = self.people
        self.console.print(panel("you see", readable(messages[-1].content, self.console)))
        return self.policy.act(messages, rng)

    def _begin(self, rules: str) -> None:
        """What a whole pack is played by."""
        self.console.print(panel("rules", rules))
        people, width = self.people, self.console.width
        for title, rows in (
            ("what there is", people.holds()),
            ("tools", list(map(_tool, beside(self.env, Tools).schemas))),
        ):
            if rows:
                self.console.print(panel(title, records(rows, width)))
        if isinstance(self.policy, Person):
            self.policy.people = people
            self.console.print(panel("what you type", self.policy.about))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.policy.note(messages, rng)

    def episode(self, episode: Episode) -> None:
        self._error = self._error or episode.error
        if episode.reward is None:
            return
        if episode.kind is EpisodeKind.SOLVE:
            self.solved.append(episode)
            colour = "green" if episode.success else "red"
            self.console.print(panel(f"reward {episode.reward:.3f}", episode.feedback, colour))
            if conditions := self.people.outcome():
                self.console.print(panel("checks", self._marked(conditions), colour))
        else:
            self.console.print(panel("context for the next task", episode.context_after or "(none)"))

    def _marked(self, conditions: Sequence[tuple[bool | None, str]]) -> Text:
        """A line for each, with a mark."""
        passed, failed = ("\u2713", "\u2717") if self.console.encoding.startswith("utf") else ("yes", "NO")
        marks = {True: (passed, "green"), False: (failed, "bold red"), None: (" ", "dim")}
        lines = (Text.assemble(marks[holds], f" {about.expandtabs(1)}") for holds, about in conditions)
        return Text("\n").join(lines)


def _tool(tool: Mapping[str, Any]) -> dict[str, str]:
    """Of a tool's schema, what a person wants to know."""
    function = tool.get("function", tool)
    given = ", ".join(function.get("parameters", {}).get("properties", {}))
    return {"call": f"{function.get('name', '')}({given})", "what it does": str(function.get("description", ""))}


def rewards(solved: Sequence[Episode]) -> Table:
    """What each task gave."""
    table = Table(title="rewards by position", box=None, title_justify="left")
    for column in ("position", "reward", "solved", "turns", "status"):
        table.add_column(column, justify="right")
    for episode in solved:
        cells = (f"{episode.reward:.3f}", "yes" if episode.success else "no", len(episode.turns), episode.status)
        table.add_row(str(episode.position), *map(str, cells))
    return table
