"""PDE Discovery: u_t = u_xx + f(u) with a hidden sparse f, the same for a whole pack; other initial states in every task.

Measure, fit, and commit to an equation; notes of what was measured, or of the terms that remain, help in later tasks.
Source of the world: arXiv 2606.20002. Differences: strata of the amplitudes do not depend on the length of the pack; points
where the reaction was cut are left out of fits; values can be shown when they are measured; data can be dropped with every
task; feedback can state whether the terms are right; splits are disjoint by construction; the object holds its state.
"""

import copy
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Demonstrator, Reference, Stepped, TextEnv, TextPolicy
from cod_lightning.envs.checks import (
    check_between,
    check_choice,
    check_in,
    check_share,
    check_span,
    check_turns,
    check_unused,
)
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.pde.actions import command_of
from cod_lightning.envs.pde.compact_policies import VerdictPlay, VerdictTeacher
from cod_lightning.envs.pde.desk import Desk, Refused
from cod_lightning.envs.pde.library import TERMS, Equation, loss, support, written
from cod_lightning.envs.pde.notes import Note
from cod_lightning.envs.pde.numerics import measured, solution
from cod_lightning.envs.pde.packs import PDETask, Worlds
from cod_lightning.envs.pde.policies import PDEOracle, PDEPlay
from cod_lightning.envs.pde.regression import Fit, Reading
from cod_lightning.envs.pde.templates import FAMILIES, eligible
from cod_lightning.envs.pde.verdicts import CANDIDATES, DICTIONARIES, PROBES, UNTIL, judged, probe_points
from cod_lightning.envs.pde.wording import CompactPDE, NaturalPDE
from cod_lightning.envs.players import Play, Teacher
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

Family = Literal["physical_full_train", "physical_full_eval_hard", "physical_full_eval_4000"]


class PDEDiscovery(TaskWorld[PDETask]):
    """Find the sparse reaction term that a pack shares; the reward is 1/(1 + loss), success is the exact set of terms.

    Args:
        family: Which reactions there are; the two evaluation families share no set of terms with the training one. In
            `physical_full_eval_4000` the pack's index chooses the template. The compact protocol has eight equations of its own.
        min_terms: Fewest active terms.
        max_terms: Most active terms, up to 3 (2 in the compact protocol).
        max_turns: Steps per task, at least 3 (2 in the compact protocol).
        point_budget: Measurements per task, up to 24; a probe of the compact protocol takes 4.
        kappa_threshold: Condition number above which a regression warns.
        noise_level: Of measured u (standard deviation); of y a quarter.
        grid_points: Of the numerical solution.
        time_levels: Of the numerical solution.
        world_memory: Whether samples and finalised equations stay stored for the pack, as in the paper, or go with every task.
        show_samples: Whether values are listed when measured (our default) or only by a regression, as in the paper.
        reveal_truth: Whether the feedback states if the active terms were right; in the paper it does not.
        length_penalty: Subtracted times turns / max_turns from the reward of a finalised equation, down to 0.
        lenient: Whether a task's first unreadable answer only costs a step.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact, a small instance).
        labels: Whether library and actions are listed in one order (fixed) or in one of the pack's own (random).
        teacher: How good the demonstrations of the warm start are.
    """

    task_type = PDETask

    def __init__(
        self,
        family: Family = "physical_full_train",
        min_terms: int = 1,
        max_terms: int = 2,
        max_turns: int = 6,
        point_budget: int = 6,
        kappa_threshold: float = 100.0,
        noise_level: float = 0.002,
        grid_points: int = 257,
        time_levels: int = 2001,
        world_memory: bool = True,
        show_samples: bool = True,
        reveal_truth: bool = False,
        length_penalty: float = 0.0,
        lenient: bool = False,
        protocol: Literal["natural", "compact"] = "natural",
        labels: Literal["fixed", "random"] = "fixed",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.family, self.min_terms, self.max_terms = family, min_terms, max_terms
        self.max_turns, self.point_budget, self.kappa_threshold = max_turns, point_budget, kappa_threshold
        self.noise_level, self.grid_points, self.time_levels = noise_level, grid_points, time_levels
        self.world_memory, self.show_samples, self.reveal_truth = world_memory, show_samples, reveal_truth
        self.length_penalty, self.lenient, self.teacher = length_penalty, lenient, teacher
        self.protocol, self.labels = protocol, labels
        self._check()
        compact = protocol == "compact"
        templates = tuple(t for t in CANDIDATES.values() if min_terms <= len(t) <= max_terms)
        self._worlds = Worlds(
            templates=templates if compact else eligible(family, min_terms, max_terms),
            in_turn=family == "physical_full_eval_4000" and not compact,
            max_modes=0 if compact else 2,
            listed=tuple(w for w, t in CANDIDATES.items() if t in templates) if compact else TERMS,
            shuffled=labels == "random",
        )
        self._natural = NaturalPDE(
            min_terms=min_terms,
            max_terms=max_terms,
            max_turns=max_turns,
            point_budget=point_budget,
            kappa_threshold=kappa_threshold,
            show_samples=show_samples,
            noise=noise_level,
            world_memory=world_memory,
            reveal_truth=reveal_truth,
        )
        self._words = CompactPDE()
        drawn = "compact" if compact else family.removeprefix("physical_full_")
        self.name = (
            f"pde-{drawn}-{min_terms}-{max_terms}-grid{grid_points}x{time_levels}-noise{noise_level:g}"
            f"{'-labels' if labels == 'random' else ''}"
        )
        self._desk = Desk()
        self._task = PDETask(
            terms=("u",), coefficients=(-1.0,), weights=(1.0,), amplitude=1.0, level=1, noise_seed=0,
            library=self._worlds.listed,
        )  # fmt: skip
        self._restart()

    @property
    def rules(self) -> str:
        if self.protocol == "compact":
            return self._words.rules()
        return self._natural.rules(self._task.library, self._task.actions)

    @property
    def success(self) -> bool:
        return self._final is not None and set(support(self._final.equation)) == set(self._task.terms)

    def words(self) -> tuple[str, ...]:
        return self._words.words() if self.protocol == "compact" else ()

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed("pde pack", self.name, str(split), seed, index)
        equation = self._worlds.equation(world_seed, split, index)
        orders = self._worlds.orders(world_seed)
        specs = (self._worlds.task(world_seed, equation, n, orders) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other active terms from task `at` on; the initial states, the noise and all that shows stay."""
        specs = [self._spec(task) for task in pack.tasks]
        change = derive_seed("pde changed", pack.id, seed)
        equation = self._worlds.other(change, pack.split, specs[at].equation, specs[at:])
        terms, values = support(equation), tuple(value for _, value in equation)
        return self._with(pack, at, terms=terms, coefficients=values)

    def without_world_memory(self) -> TextEnv:
        """The same equations, with the desk cleared before every task."""
        if not self.world_memory:
            return self
        twin = copy.deepcopy(self)
        twin.world_memory, twin._natural = False, replace(self._natural, world_memory=False)
        twin._desk = Desk()
        return twin

    def _start(self, task: PDETask) -> None:
        if not self.world_memory or task.equation != self._task.equation:
            self._desk = Desk()
        self._task = task
        self._restart()

    def _drawn(self, seed: int) -> PDETask:
        equation = self._worlds.equation(seed, None, None)
        return self._worlds.task(seed, equation, 0, self._worlds.orders(seed))

    def _observed(self) -> str:
        if self.protocol == "compact":
            return self._words.start(self._task.level)
        return self._natural.observation(0, self._desk, "")

    def step(self, action: str) -> Stepped:
        assert not self._outcome, "the task is over; call reset()"
        answer, complaint = answer_of(action)
        self._turn += 1
        if not complaint:
            return self._compact_step(answer) if self.protocol == "compact" else self._natural_step(answer)
        return self._unreadable(complaint)

    def render(self) -> str:
        final = f"; finalised {written(self._final.equation)}" if self._final else ""
        return (
            f"{written(self._task.equation)}; amplitude {self._task.amplitude:.3f}; step {self._turn} of {self.max_turns}; "
            f"{len(self._desk.merged)} points{final}"
        )

    def _restart(self) -> None:
        self._outcome, self._turn, self._warned = "", 0, False
        self._final: Fit | None = None
        self._verdicts = ""
        self._tested: set[str] = set()
        self._desk.begin(self._task.noise_seed, self.point_budget)

    def _natural_step(self, answer: str) -> Stepped:
        command, complaint = command_of(answer)
        if command is None:
            return self._unreadable(complaint)
        desk, result = self._desk, ""
        try:
            match command.name:
                case "sample_pde_data":
                    result = self._natural.sampled(desk.sample(desk.points(command), self._measure))
                case "run_sparse_regression":
                    result = self._natural.fitted(desk.regression(command, self.max_terms))
                case "summarize_pack_evidence":
                    reveal = command.arguments.get("reveal_equations", "false")
                    if reveal not in ("true", "false"):
                        raise Refused("reveal_equations is true or false.")
                    result = self._natural.summary(desk, reveal == "true")
                case _:
                    self._final = desk.finalised(command)
        except Refused as refusal:
            result = self._natural.refused(str(refusal))
        return self._end("done") if self._final else self._go_on(result)

    def _compact_step(self, answer: str) -> Stepped:
        if answer in PROBES:
            place, dictionary = PROBES[answer]
            points = probe_points(place)
            if self._desk.budget < len(points):
                return self._go_on("no-points")
            self._desk.sample(points, self._measure)
            self._tested |= set(DICTIONARIES[dictionary]) & set(self._task.library)
            survives, _ = self._judged(self._tested)
            self._verdicts = self._words.verdicts(survives, self._task.library)
            return self._go_on(self._verdicts or "no-equation")
        word = answer.removeprefix("f=")
        if word == answer or word not in self._task.library:
            return self._unreadable("")
        if not self._desk.sampled:
            return self._go_on("sample-first")
        self._final = Fit(self._judged({word})[1][word], 0.0)
        outcome = ("right" if self.success else "wrong") if self.reveal_truth else "done"
        return self._end(outcome, answered=answer)

    def _judged(self, words: Collection[str]) -> tuple[dict[str, bool], dict[str, Equation]]:
        noise = max(self.noise_level, 1e-4)
        return judged(self._desk.merged, sorted(words), (noise, noise / 4))

    def _measure(self, counter: int, x: float, t: float) -> Reading:
        task = self._task
        until = UNTIL if self.protocol == "compact" else 1.0
        u = solution(task.equation, task.weights, task.amplitude, self.grid_points, self.time_levels, until)
        state, rate = measured(u, self.time_levels, x, t)
        noise = np.random.default_rng(derive_seed("pde reading", task.noise_seed, counter)).normal(size=2)
        scale = self.noise_level
        return Reading(x, t, state + scale * float(noise[0]), rate + scale / 4 * float(noise[1]))

    def _unreadable(self, complaint: str) -> Stepped:
        if self.lenient and not self._warned:
            self._warned = True
            return self._go_on("unreadable" if self.protocol == "compact" else self._natural.warned(complaint))
        return self._end("malformed", complaint)

    def _go_on(self, result: str) -> Stepped:
        if self._turn >= self.max_turns:
            return self._end("late")
        if self.protocol == "natural":
            result = self._natural.observation(self._turn, self._desk, result)
        return result, 0.0, False, False, {}

    def _end(self, outcome: str, complaint: str = "", answered: str = "") -> Stepped:
        self._outcome = outcome
        reward = 0.0
        if self._final:
            reward = 1 / (1 + loss(self._final.equation, self._task.equation))
            reward = max(0.0, reward - self.length_penalty * self._turn / self.max_turns)
        if self.protocol == "compact":
            words = self._words.feedback(outcome, answered if self.reveal_truth else "", self._verdicts)
        else:
            words = self._natural.feedback(outcome, self._desk, self._final, self.success, complaint)
        return self._ended(words, reward)

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        if kind is Reference.ORACLE and self.protocol == "natural":
            return PDEOracle(self._spec(pack.tasks[0]).equation)
        return super().reference(kind, pack)

    def demonstrator(self, pack: Pack) -> Demonstrator:
        return (Teacher if self.protocol == "natural" else VerdictTeacher)(*self._play(pack), self.teacher)

    def _play(self, pack: Pack, *, teaches: bool = False) -> tuple[Play[Any], Any]:
        """In sentences, the equation as a likely one; in compact words, of each listed equation, whether it is the pack's."""
        equation = self._spec(pack.tasks[0]).equation
        if self.protocol == "natural":
            play = PDEPlay(self.min_terms, self.max_terms, self.max_turns, self.point_budget, self.show_samples)
            return play, Note(equation=equation, trust="likely")
        signs = {(term, 1 if value > 0 else -1) for term, value in equation}
        truth = {word: set(CANDIDATES[word]) == signs for word in self._worlds.listed}
        return VerdictPlay(self._worlds.listed), truth

    def _check(self) -> None:
        compact = self.protocol == "compact"
        check_choice("data.env.protocol", self.protocol, ("natural", "compact"))
        check_choice("data.env.labels", self.labels, ("fixed", "random"))
        check_choice("data.env.family", self.family, tuple(FAMILIES))
        check_turns(self.max_turns, "6 is the reference's.")
        if compact:
            unused = {"kappa_threshold": self.kappa_threshold, "show_samples": self.show_samples}
            check_unused(PDEDiscovery, "with protocol=compact", family=self.family, **unused)
        fewest = 2 if compact else 3
        if self.max_turns < fewest:
            need = "measure and answer" if compact else "measure, fit and finalise"
            expected = f"at least {fewest}, to {need}"
            raise ConfigError("data.env.max_turns", self.max_turns, expected, "6 is the reference's.")
        most = 2 if compact else 3
        low, high = self.min_terms, self.max_terms
        check_span("min_terms", low, "max_terms", high, 1, most, "1 and 2 are the reference's for training.")
        if not compact and not eligible(self.family, self.min_terms, self.max_terms):
            sizes = "1-2 (training) or 2-3 terms (evaluation)"
            has = f"a number of terms that {self.family} has; its reactions have {sizes}"
            raise ConfigError("data.env.max_terms", self.max_terms, has, "Use 2 for training, 3 for evaluation.")
        fewest = 4 if compact else 1
        check_in("data.env.point_budget", self.point_budget, fewest, 24, "6 is the reference's.")
        check_between("data.env.noise_level", self.noise_level, 0, 0.1, "0.002 is the reference's.")
        if not self.kappa_threshold >= 1:
            raise ConfigError("data.env.kappa_threshold", self.kappa_threshold, "at least 1", "100 is the reference's.")
        check_in("data.env.grid_points", self.grid_points, 17, 1025, "257 is the reference's.")
        check_in("data.env.time_levels", self.time_levels, 101, 8001, "2001 is the reference's.")
        check_share("data.env.length_penalty", self.length_penalty, "0 is the default.")
