"""`play`: a pack in the terminal. You are the policy: you solve, and between tasks you rewrite your own context.

With `--ckpt_path` a trained policy lives through the pack, and every episode is shown with the context beside it.
"""

import random
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from cod_lightning.commands.config_files import keys_of
from cod_lightning.commands.parser import Options
from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import ContextMechanism, default_mechanism
from cod_lightning.envs.base import Players, Reference, TextEnv, TextPolicy, Tools, Vocabulary, beside
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.errors import ConfigError, Stopped, answering, some_of
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.ranges import Natural
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import RolloutMonitor, Setting
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Message, Pack, Split

_OPTIONS: Options = {
    "num_tasks": (int, 4, "N, tasks of the pack."),
    "index": (Natural | None, None, "Which pack, from 0 on; null draws one."),
    "policy": (Literal["you", "random", "scripted", "oracle"], "you", "Who plays."),
    "ckpt_path": (str | None, None, "Watch this checkpoint of a run play. See `play --ckpt_path X --help`."),
}


def run(argv: Sequence[str]) -> int:
    """Play one pack."""
    if {"--ckpt_path", "ckpt_path"} & dict(keys_of(argv)).keys():
        return _watch(argv)
    about = "Play a pack in the terminal, or watch a reference policy play it."
    options = parse_world("play", about, argv, _OPTIONS)
    check_num_tasks("--num_tasks", options.num_tasks)
    index = random.SystemRandom().randrange(10_000) if options.index is None else options.index
    console, env, who = Screen(), options.env, options.policy
    refused = partial(ConfigError, "--env", type(env).__name__, remedy="`check --env` says what it breaks.")
    with answering(refused, "an environment that keeps its contract"):
        pack = env.sample_pack(split=Split.TEST, index=index, num_tasks=options.num_tasks)
        words = beside(env, Vocabulary).words()
        policy = None if who == "you" else beside(env, Players).reference(Reference(who), pack)
    mechanism = options.context or default_mechanism(compact=bool(words))
    console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden. Ctrl-D ends the game.")
    if policy is not None:
        return play(env, pack, policy, Audience(console), mechanism, index)
    player = Person(env, pack, console, partial(_typed, console))
    before = signal.signal(signal.SIGINT, Stopped.at_once)  # asyncio's own handler would wait for the line at a prompt
    try:
        return play(env, pack, player, player, mechanism, index)
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(argv: Sequence[str]) -> int:
    """Play one pack by a checkpoint's policy."""
    from cod_lightning.commands.deploy import setting_of  # torch and Lightning, which a person does without
    from cod_lightning.commands.train import SAMPLED, built, model_of
    from cod_lightning.datamodules.checks import drawn_pack

    own: Options = {
        "num_tasks": (int | None, None, "N; null: data.pack_size."),
        "index": (Natural, 0, "Which pack, from 0 on."),
    }
    cli = built("play", SAMPLED | own, argv)
    data, options = cli.datamodule, cli.config
    num_tasks = data.pack_size if options.num_tasks is None else options.num_tasks
    check_num_tasks("--num_tasks", num_tasks)
    pack = drawn_pack(data.env, num_tasks, 0, options.index, Split.TEST)
    audience = Audience(Screen())
    setting = setting_of(cli, model_of(cli, options.ckpt_path), audience)
    audience.console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden.")
    run_groups([pack], 1, setting)
    return audience.finish()


def play(
    env: TextEnv, pack: Pack, policy: TextPolicy, audience: "Audience", mechanism: ContextMechanism, seed: int = 0
) -> int:
    """One lifecycle, by the loop that rolls out a model's; the exit code."""
    sampler = scripted_sampler(policy, mechanism, seed)
    run_groups([pack], 1, Setting(env=env, mechanism=mechanism, sampler=sampler, monitor=audience))
    return audience.finish()


def _typed(console: Console, prompt: str) -> str:
    """A line of text, which is shown where no terminal has; EOFError where the input ends, or is closed."""
    if sys.stdin is None:
        raise EOFError
    typed = console.input(prompt).encode(errors="replace").decode()
    if not sys.stdin.isatty():
        console.print(Text(typed))
    return typed


def panel(title: str, inside: str, colour: str = "dim") -> Panel:
    """Foreign text in a box."""
    return Panel(Text(inside.expandtabs(1)), title=title, title_align="left", border_style=colour)


class Audience(RolloutMonitor):
    """Shows a policy's episodes, each with the context that it had, or that came of it, beside the dialogue."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.solved: list[Episode] = []
        self.error = ""
        """What broke the lifecycle off, if anything did."""
        self.ended = False
        """Whether it was the end of a person's input, which is no failure."""

    def episode(self, episode: Episode) -> None:
        self.error = self.error or episode.error
        if episode.kind is EpisodeKind.SOLVE and episode.reward is not None:
            self.solved.append(episode)
        lines = [text for turn in episode.turns for text in (turn.observation, f"policy> {turn.response}")]
        title, colour = "writes a text for the task that comes", "dim"
        above, context = "context", episode.context_before
        if episode.kind is EpisodeKind.SOLVE:
            lines += [episode.feedback] if episode.feedback else []
            reward = "missing" if episode.reward is None else f"{episode.reward:.3f}"
            title, colour = f"task {episode.position + 1}: reward {reward}", "green" if episode.success else "red"
        elif episode.kind is EpisodeKind.UPDATE:
            title, above, context = "rewrites its context", "context from now on", episode.context_after
        lines += [f"error: {episode.error}"] if episode.error else []
        grid = Table.grid(Column(ratio=3), Column(ratio=2), expand=True)
        grid.add_row(panel(title, "\n".join(lines), colour), panel(above, context or "(empty)"))
        self.console.print(grid)

    def finish(self) -> int:
        """Print the rewards by position and what went wrong; 1 where the environment or the policy raised."""
        failed = bool(self.error) and not self.ended
        if self.error:
            said = f"\nThe lifecycle failed: {self.error}. `check` says where." if failed else "\nStopped."
            self.console.print(said, markup=False)
        if self.solved:
            came = ", ".join(f"{one.reward:.3f} {one.status}" for one in self.solved)
            self.console.print(f"rewards by position: {came}")
        return int(failed)


class Person(Audience, TextPolicy):
    """A person at a terminal, who is shown a lifecycle as it goes on and types. `read` raises EOFError where the input ends."""

    def __init__(self, env: TextEnv, pack: Pack, console: Console, read: Callable[[str], str]) -> None:
        super().__init__(console)
        self.pack, self._typed, self.tools = pack, read, beside(env, Tools).schemas
        self.words = words = beside(env, Vocabulary).words()
        self.forms = [word[8:-9] for word in words if re.fullmatch(r"<answer>.*</answer>", word)]
        self.in_words = getattr(env, "protocol", "") == "compact"

    def read(self, prompt: str) -> str:
        """The next line. Raises EOFError where the input ends."""
        try:
            return self._typed(prompt)
        except EOFError:
            self.ended = True
            raise

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was typed; put into answer tags if the world asks for them and the person did not type them."""
        rules = messages[0].content
        if len(messages) == 2:
            self.console.print(Rule(f"task {len(self.solved) + 1} of {len(self.pack)}"))
            if not self.solved:
                self._begin(rules)
        self.console.print(panel("you see", messages[-1].content))
        line = ""
        while not line.strip():
            line = self.read("your answer> ")
        wants_tags = "<answer>" in rules or self.tools or self.words
        return f"<answer>{line.strip()}</answer>" if wants_tags and "<answer>" not in line else line

    def episode(self, episode: Episode) -> None:
        """As an audience sees it; of an update only what came of it, since the person has seen the task and typed the notes, and
        nothing of an episode that the end of the input breaks off."""
        if self.ended:
            self.error = episode.error
            self.console.print()  # behind the prompt
        elif episode.kind is EpisodeKind.UPDATE and episode.success:
            self.console.print(panel("context from now on", episode.context_after or "(empty)"))
        else:
            super().episode(episode)

    def _begin(self, rules: str) -> None:
        """What a whole pack is played by."""
        self.console.print(panel("rules", rules))
        if self.tools:
            self.console.print(panel("tools", "\n".join(map(_described, self.tools))))
        bare = "What stands between the answer tags is enough."
        answers = f"{bare} Answers are {some_of(self.forms, self.forms[0])}." if self.forms else bare
        if self.in_words:
            answers += " The texts are those of tiny policies; --env.protocol natural has sentences."
        self.console.print(panel("what you type", answers))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Lines up to an empty one; nothing at all keeps the old context."""
        self.console.print("Rewrite your notes; an empty line ends them, and nothing at all keeps the old ones.")
        lines: list[str] = []
        while line := self.read("notes> "):
            lines.append(line)
        return "\n".join(lines)


def _described(tool: Mapping[str, Any]) -> str:
    """How a call is written, and what it does."""
    function = tool.get("function", tool)
    given = ", ".join(function.get("parameters", {}).get("properties", {}))
    return f"{function.get('name', '')}({given}): {function.get('description', '')}"
