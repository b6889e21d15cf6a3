"""Terminal: file tasks at a simulated shell whose site has hidden ways of its own, the same for a whole pack.

Source of the world: arXiv 2606.20002 (TerminalSimulator, which redraws everything for each task). Differences: a pack is
one site with quirks that cost turns to find out; feedback may say what is wrong; `&&` follows exit codes; quotes, patterns
and `tar -C` work; the task stands in the first observation, so that the system text is the same for all tasks.
"""

import random
from dataclasses import replace
from typing import Any, Literal

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.players import Play
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.envs.terminal.goals import missing, set_up
from cod_lightning.envs.terminal.options import MOST_COMMANDS
from cod_lightning.envs.terminal.plans import num_lines
from cod_lightning.envs.terminal.policies import ShellPlay
from cod_lightning.envs.terminal.quirks import SLOTS, Site, draw_site, with_quirks
from cod_lightning.envs.terminal.tasks import COMPOSITE, SINGLE, TYPES, TerminalTask, draw_task
from cod_lightning.envs.terminal.wording import NaturalTerminal, TerminalView, view_of
from cod_lightning.errors import ConfigError, check_between
from cod_lightning.ranges import Count, Share
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_MOST_DRAWS = 2_000
_MOST_LETTERS = 1_000
"""Of a command line."""


class TerminalRules(TaskRules["Terminal"]):
    """What packs of the terminal hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other quirks of the same site from task `at` on; the goals stay."""
        if not self.env.quirks:
            raise ConfigError("data.env.quirks", 0, "at least 1, for a hidden rule that can change", "Set it to 2.")
        old = self.env._spec(pack.tasks[0]).site
        rng = random.Random(derive_seed("terminal change", pack.id, at, seed))
        for _ in range(_MOST_DRAWS):
            new = with_quirks(old, rng, self.env.quirks)
            later = [replace(self.env._spec(task), site=new) for task in pack.tasks[at:]]
            fits = split_of_text(repr(new)) is pack.split
            if fits and new.quirks != old.quirks and all(map(self.env._in_time, later)):
                return self.env._with(pack, at, site=new)
        raise exhausted("quirks", self.env.quirks, "a number with two sites in a split", _MOST_DRAWS, "Raise it.")


class TerminalPlayers(TaskPlayers["Terminal"]):
    """Who plays the terminal."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[Play[Any], Any]:
        """At the first task's site, where a pack has several."""
        site = self.env._spec(pack.tasks[0]).site
        return ShellPlay(site), site.quirks


class Terminal(TaskWorld[TerminalTask]):
    """Do file tasks on a local machine and a remote host whose quirks are hidden and shared by a pack.

    A hidden fact is, for example, that only rsync copies to the host, that it is reached through a jump host, or that its
    folder is read-only and writable by another path. A pack has one system, host, account and habitual folders, and every
    task can be solved within its turns once the quirks are known. With 0 quirks everything is redrawn for each task and
    nothing is hidden, as in the reference.

    Args:
        quirks: Hidden facts of a pack: 0 to 6.
        max_turns: Command lines per task; 12 is the reference's.
        composite_ratio: Probability that a task is of a composite type.
        feedback: Whether the words after a failed task say which test of the goal failed (reason), or only that it did (plain).
        length_penalty: A success with t turns is worth 1 - length_penalty * t / max_turns. 0 is the reference's; with quirks a
            small one such as 0.1 makes learning visible in the reward also where every task is solved.
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (TerminalRules, TerminalPlayers, *TaskWorld.companions)

    task_type = TerminalTask
    wording = NaturalTerminal()
    _task: TerminalTask

    def __init__(
        self,
        quirks: int = 2,
        max_turns: Count = 12,
        composite_ratio: Share = 0.5,
        feedback: Literal["reason", "plain"] = "reason",
        length_penalty: Share = 0.0,
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.quirks, self.max_turns = quirks, max_turns
        self.composite_ratio, self.length_penalty = composite_ratio, length_penalty
        self.feedback, self.teacher = feedback, teacher
        check_between("data.env.quirks", quirks, 0, len(SLOTS), "2 is the default.")
        self.name = f"terminal-natural-q{quirks}-t{max_turns}-{MOST_COMMANDS}-c{composite_ratio:g}-fixed"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One site of the split and N tasks at it; with 0 quirks a site for each task."""
        world_seed = derive_seed("terminal pack", self.name, str(split), seed, index)
        site = self._site(random.Random(world_seed), split) if self.quirks else None
        specs = (self._draw(derive_seed(world_seed, n), split, site) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def _site(self, rng: random.Random, split: Split | None) -> Site:
        """A site of that split, if there is one."""
        while True:
            site = draw_site(rng, self.quirks)
            if split in (None, split_of_text(repr(site))):
                return site

    def _draw(self, seed: int, split: Split, site: Site | None) -> TerminalTask:
        """A task that can be solved in time, at the site or one of its own; of the split itself where its site is of none."""
        rng = random.Random(seed)
        for _ in range(_MOST_DRAWS):
            composite = rng.random() < self.composite_ratio
            kind = rng.choice(COMPOSITE if composite else SINGLE)
            task = draw_task(rng, site or self._site(rng, None), kind)
            if (site is not None or split_of_text(repr(task)) is split) and self._in_time(task):
                return task
        wanted, remedy = f"enough for a task of the types {', '.join(TYPES)}", "Raise it."
        raise exhausted("max_turns", self.max_turns, wanted, _MOST_DRAWS, remedy)

    def _in_time(self, task: TerminalTask) -> bool:
        return num_lines(view_of(task), task.site.quirks) <= self.max_turns

    def _start(self, task: TerminalTask) -> None:
        self._task, self._lack = task, ""
        self._shell = set_up(task)
        self._view = TerminalView(task, self.max_turns, self._shell.prompt())

    def _observed(self) -> str:
        return self.wording.observation(self._view)

    def _acted(self, action: str) -> str:
        self._view.turn += 1
        said, complaint = answer_of(action)
        self._complaint = complaint or self._unfit(said)
        if self._complaint:
            return "malformed"
        if self._reached(said):
            return "win"
        return "late" if self._view.turn == self.max_turns else ""

    def _unfit(self, said: str) -> str:
        if not said:
            return "the answer is empty"
        return "" if len(said) <= _MOST_LETTERS else f"the command line is longer than {_MOST_LETTERS} letters"

    def _reached(self, said: str) -> bool:
        """Carry out what was said; whether the goal is reached then."""
        self._view.last, self._view.prompt = self._shell.run(said), self._shell.prompt()
        self._lack = missing(self._task, self._shell)
        return not self._lack

    def _feedback(self) -> str:
        reason = self._complaint or (self._lack if self.feedback == "reason" else "")
        return self.wording.feedback(self._outcome, self._view, reason)

    def _reward(self) -> float:
        return 1 - self.length_penalty * self._view.turn / self.max_turns if self.success else 0.0
