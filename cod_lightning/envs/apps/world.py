"""Apps: tasks in the apps of a person, at a site whose quirks and for a person whose habits are hidden and shared by a pack.

Kind of world: AppWorld, as trained on in LOOP (arXiv 2502.01600): stateful apps behind documented calls, code or calls as actions,
checks on the final state, collateral damage included. People, apps and tasks are our own and drawn from seeds.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from cod_lightning.envs.answers import clean
from cod_lightning.envs.apps.actions import Actions, CodeActions, ToolCalls
from cod_lightning.envs.apps.checks import Check
from cod_lightning.envs.apps.facts import HABITS, QUIRKS, HiddenFacts, draw_facts
from cod_lightning.envs.apps.policies import AppsPlay
from cod_lightning.envs.apps.site import Extension, site_of
from cod_lightning.envs.apps.tasks import AppsTask, asks_for_something, draw_task, with_budget
from cod_lightning.envs.apps.wording import NaturalApps
from cod_lightning.envs.base import Tools, split_of_text
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.players import Play
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.errors import ConfigError, check_between, did_you_mean, some_of
from cod_lightning.ranges import Count, Natural
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_MOST_DRAWS = 2_000
_MOST_SHOWN = 8_000
"""Letters of what is shown after a turn."""
_QUESTION_COST = 0.05
"""What each question takes from the reward."""


class AppTools(Tools["Apps"]):
    """The tools of the apps."""

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The calls of `user`, which document all others."""
        if self.env.form != "tools":
            return []
        (user,) = (app for app in self.env.site.apps if app.name == "user")
        return [
            {
                "type": "function",
                "function": {
                    "name": f"user.{name}",
                    "description": endpoint.about,
                    "parameters": endpoint.schema,
                },
            }
            for name, endpoint in user.endpoints.items()
        ]

    @property
    def results(self) -> list[str]:
        """What each call has shown; the last one with the state of the task."""
        shown = [clean(one, _MOST_SHOWN // len(self.env._actions.results)) for one in self.env._actions.results]
        return [*shown[:-1], f"{shown[-1]}\n{self.env._state()}"] if shown else []


class AppRules(TaskRules["Apps"]):
    """What packs of the apps hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other quirks and habits of the same site and person from task `at` on; goals stay where they still ask for something."""
        old = self.env._spec(pack.tasks[0]).facts
        rng = random.Random(derive_seed("apps change", pack.id, at, seed))
        for _ in range(_MOST_DRAWS):
            new = self.env._facts(rng, pack.split)
            later = [replace(self.env._spec(task), facts=new) for task in pack.tasks[at:]]
            fits = all(getattr(new, slot) != getattr(old, slot) for slot in HABITS)
            if not fits or not all(map(asks_for_something, later)):
                continue
            fitted = [with_budget(task, self.env.spare_calls, self.env.max_turns, self.env.patience) for task in later]
            if all(fitted):
                return self.env._with_specs(pack, at, [task for task in fitted if task])
        wanted = "enough for the tasks at another site"
        raise exhausted("max_turns", self.env.max_turns, wanted, _MOST_DRAWS, "Raise it.")


class AppPlayers(TaskPlayers["Apps"]):
    """Who plays the apps."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[Play[Any], Any]:
        return AppsPlay(self.env._actions, self.env.site), self.env._spec(pack.tasks[0]).facts


class Apps(TaskWorld[AppsTask]):
    """Do what a person asks for in twelve apps.

    A pack has one person and one site. Hidden are the site's quirks (small pages, a calendar on another clock, a limit of calls a
    turn, a log-in of another name, an argument that no documentation has) and the person's habits (card, address, who the boss is,
    how mails are signed, how long meetings take). Informed play always finds its task solvable within its calls and turns.

    Args:
        actions: Code in a sandbox; calls of tools that the policy's own chat template lists, reads and answers in the tool's role
            (tools); or calls in text and answers as the user's: JSON lines between answer tags, or as the templates of Qwen,
            Llama, Mistral or GPT-OSS spell them.
        quirks: Quirks of the site that are unusual, 0 to 5.
        max_turns: Turns per task.
        spare_calls: Calls beyond those that informed play takes; what has to be found out costs some.
        patience: Questions of a task that the person answers.
        difficulties: Levels of kinds of tasks: the number of apps, 3 for more, and one more for kinds that take many calls.
        templates: Kinds of tasks that may be drawn; null for all but those in which the person wants to confirm a payment
            (confirm_transfer, confirm_pay_contact, confirm_goods).
        extensions: Apps of your own, beside those that ship.
        split_by: What belongs to one of train, validation and test: the quirks and habits taken together (facts), of which parts
            recur in other splits; the template.
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (AppTools, AppRules, AppPlayers, *TaskWorld.companions)

    task_type = AppsTask
    wording = NaturalApps()
    _task: AppsTask
    _server: Any = None
    """The present task's `AppServer`; None before the first one."""

    def __init__(
        self,
        actions: Literal["code", "tools", "json", "qwen", "llama", "mistral", "gpt_oss"] = "code",
        quirks: int = 2,
        max_turns: Count = 16,
        spare_calls: Natural = 2,
        patience: Count = 2,
        difficulties: Sequence[Literal[1, 2, 3]] = (1, 2, 3),
        templates: Sequence[str] | None = None,
        extensions: Sequence[Extension] = (),
        split_by: Sequence[Literal["facts", "template"]] = ("facts",),
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.form, self.quirks, self.max_turns, self.spare_calls = actions, quirks, max_turns, spare_calls
        self.patience, self.split_by, self.difficulties = patience, tuple(split_by), tuple(difficulties)
        self.teacher = teacher
        self.extensions = tuple(extensions)
        self.site = site_of(self.extensions)
        self._check()
        self.kinds = self._kinds(templates)
        drawn = "".join(f"+{extension.app.name}" for extension in self.extensions)
        drawn += "" if templates is None else "-" + ".".join(sorted(templates))
        levels = "".join(map(str, self.difficulties))
        self.name = f"apps-natural-q{quirks}-t{max_turns}-s{spare_calls}-d{levels}-{'.'.join(self.split_by)}{drawn}"
        self._actions = self._new_actions()

    @property
    def rules(self) -> str:
        apps = ", ".join(app.name for app in self.site.apps)
        return self.wording.rules(self._actions.about, self._actions.example, apps, self.max_turns, self.patience)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One site and one person of the split, and N tasks."""
        world_seed = derive_seed("apps pack", self.name, str(split), seed, index)
        rng = random.Random(world_seed)
        person, facts = rng.randrange(2**40), self._facts(rng, split)
        specs = (self._draw(derive_seed(world_seed, n), split, person, facts) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def _facts(self, rng: random.Random, split: Split) -> HiddenFacts:
        for _ in range(_MOST_DRAWS):
            facts = draw_facts(rng, self.quirks)
            if "facts" not in self.split_by or split_of_text(f"facts 1 {facts}") is split:
                return facts
        raise AssertionError("facts of any split are drawn before long")

    def _draw(self, seed: int, split: Split, person: int, facts: HiddenFacts) -> AppsTask:
        """A task of the split that informed play can do in time."""
        rng = random.Random(seed)
        kinds = self._of_split(split) if "template" in self.split_by else self.kinds
        for _ in range(_MOST_DRAWS):
            task = draw_task(rng, person, facts, kinds, self.extensions)
            if task is not None and (fitted := with_budget(task, self.spare_calls, self.max_turns, self.patience)):
                return fitted
        wanted = f"enough for a task of the kinds {', '.join(kinds)}"
        raise exhausted("max_turns", self.max_turns, wanted, _MOST_DRAWS, "Raise it.")

    def _of_split(self, split: Split) -> tuple[str, ...]:
        """Templates of that split: of ten in the order of a hash, the first is for tests, the second for validation."""
        ranked = sorted(self.kinds, key=lambda name: derive_seed("template", name))
        place = {Split.TEST: (0,), Split.VALIDATION: (1,), Split.TRAIN: tuple(range(2, 10))}[split]
        return tuple(name for n, name in enumerate(ranked) if n % 10 in place)

    def _kinds(self, templates: Sequence[str] | None) -> tuple[str, ...]:
        known = tuple(self.site.templates)
        usual = tuple(name for name in known if not self.site.templates[name].confirmed)
        chosen = usual if templates is None else tuple(templates)
        if (wrong := sorted(set(chosen) - set(known))) or not chosen:
            meant = did_you_mean(wrong[0], known) if wrong else ""
            expected = f"some of {some_of(known, ' '.join(wrong[:1]))}"
            raise ConfigError("data.env.templates", list(chosen), expected, f"{meant}Leave it out for all.")
        kinds = tuple(name for name in chosen if self.site.templates[name].difficulty in self.difficulties)
        if not kinds:
            expected = "a number of apps that some template needs"
            raise ConfigError("data.env.difficulties", list(self.difficulties), expected, "Leave it out for all.")
        if "template" in self.split_by and len(kinds) < 3:
            expected = "at least 3 kinds, one for each split, where split_by has template"
            raise ConfigError("data.env.templates", list(kinds), expected, "Name more, or split by something else.")
        return kinds

    def _start(self, task: AppsTask) -> None:
        self._task, self._turn, self._shown = task, 0, ""
        self._results: list[Check] = []
        self._server = task.server(self.patience)
        self._actions = self._new_actions()

    def _new_actions(self) -> Actions:
        return CodeActions([app.name for app in self.site.apps]) if self.form == "code" else ToolCalls(self.form)

    def _observed(self) -> str:
        before = (
            clean(self._shown or "(nothing was shown)", _MOST_SHOWN) if self._turn else self.wording.opening(self._task)
        )
        return f"{before}\n{self._state()}"

    def _state(self) -> str:
        return self.wording.state(self._server.budget - self._server.calls, self._turn, self.max_turns)

    def _acted(self, action: str) -> str:
        self._turn += 1
        said, complaint = self._actions.read(action)
        if complaint:
            self._shown = complaint
            return "malformed"
        self._server.begin_turn()
        self._shown = self._actions.run(said, self._server)
        if self._server.finished or self._turn == self.max_turns:
            self._results = self._task.checked(self._server)
            late = "late" if not self._server.finished else "lost"
            return "win" if all(check.passed for check in self._results) else late
        return ""

    def _feedback(self) -> str:
        return clean(self.wording.feedback(self._task, self._outcome, self._results, self._shown), _MOST_SHOWN)

    def _reward(self) -> float:
        """The share of checks passed, less what questions cost; 0 where nothing of what was asked for has come about."""
        if not any(check.passed for check in self._results if check.asked):
            return 0.0
        share = sum(check.passed for check in self._results) / len(self._results)
        return max(0.01 if self.success else 0.0, share - _QUESTION_COST * self._server.user.questions)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Apps":
        """A snapshot; all but the state of the task is shared."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._server, twin._actions = copy.deepcopy(self._server, memo), copy.deepcopy(self._actions, memo)
        if self._np_random is not None:
            twin._np_random = copy.deepcopy(self._np_random, memo)
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._server is not None:
            self._server.apps = self.site.apps

    def _check(self) -> None:
        check_between("data.env.quirks", self.quirks, 0, len(QUIRKS), "2 is the default.")
        if not 0 < len(self.split_by) == len(set(self.split_by)):
            expected = "facts, template or both, each once: with none, packs of two splits could be the same"
            raise ConfigError("data.env.split_by", list(self.split_by), expected, "[facts] is the default.")
