"""PDE Discovery: u_t = u_xx + f(u) with a hidden sparse f, the same for a whole pack; other initial states in every task.

Measure, fit, and commit to an equation; notes of what was measured, or of the terms that remain, help in later tasks.
Source of the world: arXiv 2606.20002. Differences: strata of the amplitudes do not depend on the length of the pack; points
where the reaction was cut are left out of fits; values can be shown when they are measured; data can be dropped with every
task; splits are disjoint by construction; the object holds its state.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Reference, TextPolicy, Traits
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.pde.actions import command_of
from cod_lightning.envs.pde.compact_policies import VerdictPlay
from cod_lightning.envs.pde.desk import Desk, Refused
from cod_lightning.envs.pde.library import Equation, eligible, loss, support
from cod_lightning.envs.pde.numerics import measured, solution
from cod_lightning.envs.pde.packs import PDETask, Worlds
from cod_lightning.envs.pde.parameters import PDEParameters
from cod_lightning.envs.pde.policies import Note, PDEOracle, PDEPlay
from cod_lightning.envs.pde.regression import Fit, Reading
from cod_lightning.envs.pde.verdicts import CANDIDATES, DICTIONARIES, PROBES, UNTIL, judged, probe_points
from cod_lightning.envs.pde.wording import CompactPDE, NaturalPDE
from cod_lightning.envs.players import Play
from cod_lightning.envs.task_world import MemoryVariants, TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


class PDERules(TaskRules["PDEDiscovery"]):
    """What packs of the equations hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other active terms from task `at` on; the initial states, the noise and all that shows stay."""
        specs = [self.env._spec(task) for task in pack.tasks]
        change = derive_seed("pde changed", pack.id, seed)
        equation = self.env._worlds.other(change, pack.split, specs[at].equation, specs[at:])
        terms, values = support(equation), tuple(value for _, value in equation)
        return self.env._with(pack, at, terms=terms, coefficients=values)


class PDEPlayers(TaskPlayers["PDEDiscovery"]):
    """Who plays the equations."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        if kind is Reference.ORACLE and not self.env.parameters.compact:
            return PDEOracle(self.env._spec(pack.tasks[0]).equation)
        return super().reference(kind, pack)

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[Play[Any], Any]:
        """In sentences, the equation as a likely one; in compact words, of each listed equation, whether it is the pack's."""
        equation = self.env._spec(pack.tasks[0]).equation
        if not self.env.parameters.compact:
            play = PDEPlay(self.env.parameters)
            return play, Note(equation=equation, trust="likely")
        signs = {(term, 1 if value > 0 else -1) for term, value in equation}
        truth = {word: set(CANDIDATES[word]) == signs for word in self.env.listed}
        return VerdictPlay(self.env.listed), truth


class PDEDiscovery(TaskWorld[PDETask]):
    """Find the sparse reaction term that a pack shares; the reward is 1/(1 + loss), success is the exact set of terms.

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `PDEParameters`, which documents them.
    """

    companions = (PDERules, MemoryVariants, PDEPlayers, *TaskWorld.companions)

    task_type = PDETask
    traits = Traits(hides_reward=True)
    _equation: Equation = ()
    """Of the pack that the samples are of."""
    _final: Fit | None = None

    def __init__(self, teacher: TeacherDials = TeacherDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = p = PDEParameters(**parameters)
        self.name, self.max_turns, self.teacher = p.name, p.max_turns, teacher
        templates = tuple(t for t in CANDIDATES.values() if p.min_terms <= len(t) <= p.max_terms)
        self._worlds = Worlds(
            templates=templates if p.compact else eligible(p.family, p.min_terms, p.max_terms),
            in_turn=p.family == "physical_full_eval_4000" and not p.compact,
            max_modes=0 if p.compact else 2,
        )
        self.listed = tuple(word for word, template in CANDIDATES.items() if template in templates)
        """Equations of the compact protocol."""
        self.wording = CompactPDE() if p.compact else NaturalPDE(p)

    @property
    def rules(self) -> str:
        return self.wording.rules()

    @property
    def success(self) -> bool:
        return self._final is not None and set(support(self._final.equation)) == set(self._task.terms)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed("pde pack", self.name, str(split), seed, index)
        equation = self._worlds.equation(world_seed, split, index)
        specs = (self._worlds.task(world_seed, equation, n) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def _start(self, task: PDETask) -> None:
        if not self.parameters.world_memory or task.equation != self._equation:
            self._desk, self._equation = Desk(), task.equation
        self._task, self._turn, self._final = task, 0, None
        self._result = self._verdicts = ""
        self._tested: set[str] = set()
        self._desk.begin(task.noise_seed, self.parameters.point_budget)

    def _observed(self) -> str:
        if self.parameters.compact:
            return self._result or self.wording.start(self._task.level)
        return self.wording.observation(self._turn, self._desk, self._result)

    def _acted(self, action: str) -> str:
        answer, self._complaint = answer_of(action)
        self._turn += 1
        if self._complaint:
            return "malformed"
        outcome = self._answered(answer) if self.parameters.compact else self._commanded(answer)
        return outcome or ("late" if self._turn >= self.max_turns else "")

    def _commanded(self, answer: str) -> str:
        command, self._complaint = command_of(answer)
        if command is None:
            return "malformed"
        desk, result = self._desk, ""
        try:
            match command.name:
                case "sample_pde_data":
                    result = self.wording.sampled(desk.sample(desk.points(command), self._measure))
                case "run_sparse_regression":
                    result = self.wording.fitted(desk.regression(command, self.parameters.max_terms))
                case "summarize_pack_evidence":
                    reveal = command.arguments.get("reveal_equations", "false")
                    if reveal not in ("true", "false"):
                        raise Refused("reveal_equations is true or false.")
                    result = self.wording.summary(desk, reveal == "true")
                case _:
                    self._final = desk.finalised(command)
        except Refused as refusal:
            result = self.wording.refused(str(refusal))
        self._result = result
        return "done" if self._final else ""

    def _answered(self, answer: str) -> str:
        """A word of the compact protocol."""
        if answer in PROBES:
            place, dictionary = PROBES[answer]
            points = probe_points(place)
            if self._desk.budget < len(points):
                self._result = "no-points"
                return ""
            self._desk.sample(points, self._measure)
            self._tested |= set(DICTIONARIES[dictionary]) & set(self.listed)
            survives, _ = self._judged(self._tested)
            self._verdicts = self.wording.verdicts(survives, self.listed)
            self._result = self._verdicts or "no-equation"
            return ""
        word = answer.removeprefix("f=")
        if word == answer or word not in self.listed:
            return "malformed"
        if not self._desk.sampled:
            self._result = "sample-first"
            return ""
        self._final = Fit(self._judged({word})[1][word], 0.0)
        return "done"

    def _judged(self, words: Collection[str]) -> tuple[dict[str, bool], dict[str, Equation]]:
        noise = max(self.parameters.noise_level, 1e-4)
        return judged(self._desk.merged, sorted(words), (noise, noise / 4))

    def _measure(self, counter: int, x: float, t: float) -> Reading:
        task = self._task
        until = UNTIL if self.parameters.compact else 1.0
        u = solution(
            task.equation, task.weights, task.amplitude, self.parameters.grid_points, self.parameters.time_levels, until
        )
        state, rate = measured(u, self.parameters.time_levels, x, t)
        noise = np.random.default_rng(derive_seed("pde reading", task.noise_seed, counter)).normal(size=2)
        scale = self.parameters.noise_level
        return Reading(x, t, state + scale * float(noise[0]), rate + scale / 4 * float(noise[1]))

    def _feedback(self) -> str:
        if self.parameters.compact:
            return self.wording.feedback(self._outcome, self._verdicts)
        return self.wording.feedback(self._outcome, self._desk, self._final, self._complaint)

    def _reward(self) -> float:
        return 1 / (1 + loss(self._final.equation, self._task.equation)) if self._final else 0.0
