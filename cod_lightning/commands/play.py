"""`play`: a pack in the terminal. You are the policy: you solve, and between tasks you rewrite your own hints."""

import random
from collections.abc import Callable, Sequence
from typing import Literal

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cod_lightning.commands.worlds import parse_world, world_parser
from cod_lightning.contexts.hint import HintContext
from cod_lightning.envs.base import Reference, TextEnv, TextPolicy
from cod_lightning.errors import ConfigError
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Message, Pack, Role, Split, StopReason, Task, Turn


def run(argv: Sequence[str]) -> int:
    """Play one pack."""
    parser = world_parser("play", "Play a pack in the terminal, or watch a reference policy play it.")
    parser.add_argument("--num_tasks", type=int, default=4, help="N, tasks of the pack.")
    parser.add_argument("--split", type=Split, default=Split.TEST, help="Share of the worlds the pack is drawn from.")
    parser.add_argument("--index", type=int | None, default=None, help="Which pack, from 0 on; null draws one.")
    who = Literal["you", "random", "scripted", "oracle"]
    parser.add_argument("--policy", type=who, default="you", help="Who plays.")
    options = parse_world(parser, argv)
    if options.num_tasks < 1:
        raise ConfigError("--num_tasks", options.num_tasks, "at least 1", "4 is the default.")
    index = random.SystemRandom().randrange(10_000) if options.index is None else options.index
    pack = options.env.sample_pack(split=options.split, index=index, num_tasks=options.num_tasks)
    console = Screen()
    console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden. Ctrl-D ends the game.")
    if options.policy == "you":
        player: Player = Person(console, console.input)
    else:
        player = Watched(console, options.env.reference(Reference(options.policy), pack), random.Random(index))
    Game(options.env, pack, player, console).play()
    return 0


class Player:
    """Who answers; what is asked has been shown already."""

    def solve(self, messages: Sequence[Message]) -> str:
        """The next response in a task."""
        raise NotImplementedError

    def update(self, messages: Sequence[Message], hint: str) -> str:
        """The new hint."""
        raise NotImplementedError


class Person(Player):
    """Types. Raises EOFError where the input ends."""

    def __init__(self, console: Console, read: Callable[[str], str]) -> None:
        self.console, self.read = console, read

    def solve(self, messages: Sequence[Message]) -> str:
        """One line; put into answer tags if the world asks for them and the person did not type them."""
        typed = self.read("your answer> ")
        wants_tags = "<answer>" in messages[0].content or not messages[0].content.strip().count(" ")
        return f"<answer>{typed.strip()}</answer>" if wants_tags and "<answer>" not in typed else typed

    def update(self, messages: Sequence[Message], hint: str) -> str:
        """Lines up to an empty one; nothing at all keeps the old hints."""
        self.console.print("Rewrite your hints; an empty line ends them, and nothing at all keeps the old ones.")
        lines: list[str] = []
        while line := self.read("hints> "):
            lines.append(line)
        return "\n".join(lines) or hint


class Watched(Player):
    """A reference policy plays, and is seen playing."""

    def __init__(self, console: Console, policy: TextPolicy, rng: random.Random) -> None:
        self.console, self.policy, self.rng = console, policy, rng

    def solve(self, messages: Sequence[Message]) -> str:
        """What the policy says."""
        said = self.policy.act(messages, self.rng)
        self.console.print(Text.assemble(("policy>", "bold"), f" {said}"))
        return said

    def update(self, messages: Sequence[Message], hint: str) -> str:
        """What the policy notes."""
        return self.policy.note(messages, self.rng)


class Game:
    """One lifecycle with a screen."""

    def __init__(self, env: TextEnv, pack: Pack, player: Player, console: Console) -> None:
        self.env, self.pack, self.player, self.console = env, pack, player, console
        self.mechanism = HintContext("compact" if env.words() else "natural", response_limit=None)
        self.solved: list[Episode] = []

    def play(self) -> list[Episode]:
        """All tasks, then the rewards by position; ends early where the input does."""
        hint = self.mechanism.empty()
        try:
            for position, task in enumerate(self.pack.tasks):
                self.solved.append(self._solve(task, position, hint))
                if position < len(self.pack) - 1:
                    asked = self.mechanism.ask(self.env.rules, self.solved[-1])
                    hint = self.player.update(asked, hint)
                    self._panel("hints for the next task", hint or "(none)")
        except EOFError:
            self.console.print("\nStopped.")
        self._report()
        return self.solved

    def _solve(self, task: Task, position: int, hint: str) -> Episode:
        observation, _ = self.env.reset(options={"task": task})
        self.console.print(Rule(f"task {position + 1} of {len(self.pack)}"))
        if position == 0:
            self._panel("rules", self.env.rules)
        messages = [Message(Role.SYSTEM, self.mechanism.inject(self.env.rules, hint)), Message(Role.USER, observation)]
        turns: list[Turn] = []
        while True:
            self._panel("you see", messages[-1].content)
            response = self.player.solve(messages)
            turns.append(_turn(messages[-1].content, response))
            observation, reward, terminated, truncated, _ = self.env.step(response)
            messages += [Message(Role.ASSISTANT, response), Message(Role.USER, observation)]
            if terminated or truncated:
                break
        colour = "green" if self.env.success else "red"
        self._panel(f"reward {float(reward):.3f}", observation, colour)
        return Episode(
            kind=EpisodeKind.SOLVE,
            position=position,
            status=self.env.status,
            turns=tuple(turns),
            reward=float(reward),
            success=self.env.success,
            feedback=observation,
            context_before=hint,
            context_after=hint,
        )

    def _panel(self, title: str, text: str, colour: str = "dim") -> None:
        self.console.print(Panel(Text(text.expandtabs(1)), title=title, title_align="left", border_style=colour))

    def _report(self) -> None:
        if not self.solved:
            return
        table = Table(title="rewards by position", box=None, title_justify="left")
        for column in ("position", "reward", "solved", "turns", "status"):
            table.add_column(column, justify="right")
        for episode in self.solved:
            cells = (f"{episode.reward:.3f}", "yes" if episode.success else "no", len(episode.turns), episode.status)
            table.add_row(str(episode.position), *map(str, cells))
        self.console.print(table)


def _turn(observation: str, response: str) -> Turn:
    return Turn(
        new_ids=(),
        extends=False,
        action_ids=(),
        behaviour_logprobs=(),
        stop=StopReason.STOP,
        policy_version=-1,
        prompt_digest=0,
        observation=observation,
        response=response,
    )
