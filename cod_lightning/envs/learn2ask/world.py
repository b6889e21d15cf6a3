"""Learn2Ask: in one turn, ask a patient for something that is still missing, or stop.

Two sources of patients: a synthetic clinic whose protocol of required items is hidden and shared by a pack, and decision
points prepared from real dialogues (JasonHaggard/RealMedConv), which share nothing but the common policy.
"""

import random
from collections.abc import Sequence
from typing import Any, Literal

from cod_lightning.envs.base import Demonstrator, Reference, TextPolicy, Traits
from cod_lightning.envs.checks import check_unused
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.learn2ask.clinic import STOP_SHARE, Clinics, ClinicTask
from cod_lightning.envs.learn2ask.compact import CompactClinic
from cod_lightning.envs.learn2ask.items import CONDITIONS, ITEMS
from cod_lightning.envs.learn2ask.judge import AnyTask, Judge, RuleJudge, graded
from cod_lightning.envs.learn2ask.natural import NaturalClinic, NaturalRecords
from cod_lightning.envs.learn2ask.policies import ClinicPlay, RecordOracle
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.records import RecordTask, load_records
from cod_lightning.envs.learn2ask.wording import BEST
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.errors import ConfigError, check_between
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


class ClinicRules(TaskRules["Learn2Ask"]):
    """What packs of the clinic hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another protocol from task `at` on; the dialogues stay, so that labels change with it.

        A dialogue that mentioned all of the old protocol seldom mentions all of the new one: a stop is right in fewer later tasks.
        """
        old = pack.tasks[at].spec
        if not isinstance(old, ClinicTask):
            expected = "a hidden protocol, which alone can change"
            raise ConfigError("data.env", self.env.name, expected, "Leave data.env.data_path out.")
        rng = random.Random(derive_seed("learn2ask change", pack.id, seed))
        required = old.required
        while required == old.required:
            required = self.env.clinics.draw_protocol(rng)
        return self.env._with(pack, at, required=required)


class ClinicPlayers(TaskPlayers["Learn2Ask"]):
    """Who plays the clinic."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        if self.env.records is None or kind is Reference.SCRIPTED:
            return super().reference(kind, pack)
        return RecordOracle.of(self.env.wording, pack, skill=float(kind is Reference.ORACLE))

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher that knows this pack's protocol (or, of prepared dialogues, what is right in one of two)."""
        if self.env.records is not None:
            return RecordOracle.of(self.env.wording, pack, skill=0.5)
        return super().demonstrator(pack)

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[ClinicPlay, Facts]:
        spec = pack.tasks[0].spec
        if not isinstance(spec, ClinicTask):
            raise NotImplementedError("prepared dialogues hide no rule that a script could remember")
        truth = {name: name in spec.required for name in self.env.clinics.items}
        return ClinicPlay(self.env.clinics, self.env.wording), truth


class Learn2Ask(TaskWorld[AnyTask]):
    """Ask one question about what is missing, or stop; graded once per task.

    Action is 1 if stopping or asking fits the label, else all scores are 0. A question gets content and format from a judge; a
    right stop has content 1, and format 1 if the answer is nothing but the stop tag. `success` means the right action with
    content 1. Differs from the reference (arXiv 2606.20002 has no results on this world; its code does) in these points: rewards
    are divided by their maximum, answers stand between tags after visible reasoning (see form), the hidden protocol of the
    synthetic clinic, and the rule-based judge; with `data_path`, `normalise: false`, `form: raw` and an `EndpointJudge` all are
    as there.

    Of the clinic a dialogue belongs to one split; the protocols, few as they are, occur in all.

    Args:
        data_path: JsonL file of decision points, see docs/guides/learn2ask_data.md; null for the synthetic clinic.
        split_by: What of the file stays whole in one split: a dialogue (session), or a diagnosis with all its dialogues, so that
            validation and test are out of distribution.
        normalise: Divide the reward by its maximum, so that it lies in [0, 1] as in other worlds; the reference does not.
        judge: What grades questions; null for rules (RuleJudge). An EndpointJudge asks a language model. Natural protocol only.
        form: Whether an answer stands between answer tags after reasoning (tagged), or is the whole response (raw, the reference).
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact).
        teacher: How good the demonstrations of the warm start are.
        clinic: Sizes of the clinic, those of `Clinics`.
    """

    companions = (ClinicRules, ClinicPlayers, *TaskWorld.companions)

    task_type = (ClinicTask, RecordTask)
    wins = ("right", "stopped")
    """The right action with content 1, whatever the format."""
    late = None
    """Here it is the word for a question where a stop was due."""
    max_turns = 1

    def __init__(
        self,
        data_path: str | None = None,
        split_by: Literal["session", "diagnosis"] = "session",
        normalise: bool = True,
        judge: Judge | None = None,
        form: Literal["tagged", "raw"] = "tagged",
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
        **clinic: Any,
    ) -> None:
        self.normalise, self.protocol, self.teacher, self.form = normalise, protocol, teacher, form
        self.clinics = Clinics(**clinic)
        self._check(judge, data_path)
        self.judge = None if protocol == "compact" else judge or RuleJudge()
        waits = self.judge is not None and self.judge.blocking
        self.traits = Traits(reward_range=(0.0, 1.0 if normalise else BEST), blocking=waits)
        self.records = None if data_path is None else load_records(data_path, split_by)
        if self.records is not None:
            by = "" if split_by == "session" else "-diagnosis"
            self.name = f"learn2ask-data-{self.records.digest[:12]}{by}"
            self.wording = NaturalRecords(form)
        else:
            c = self.clinics
            check_unused(Learn2Ask, "without data.env.data_path", split_by=split_by)
            self.name = f"learn2ask-{c.num_required}of{c.num_items}-c{c.num_conditions}-stop{STOP_SHARE:g}"
            self.wording = NaturalClinic(self.clinics, form) if protocol == "natural" else CompactClinic(self.clinics)

    @property
    def rules(self) -> str:
        return self.wording.rules()

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One clinic and N patients of the split, or N decision points of the split, none twice until all have been used."""
        world_seed = derive_seed("learn2ask pack", self.name, str(split), seed, index)
        if self.records is not None:
            specs: Sequence[AnyTask] = self.records.draw(split, world_seed, num_tasks)
        else:
            specs = self.clinics.patients(split, world_seed, num_tasks)
        return self._pack(split, index, seed, world_seed, specs)

    def _acted(self, action: str) -> str:
        """Read the answer and have it judged. Raises `EnvironmentFailure` where the judge does."""
        self._judged = graded(self._task, self.wording.read(action), self.judge)
        return self._judged.outcome

    def _feedback(self) -> str:
        return self.wording.feedback(self._judged)

    def _reward(self) -> float:
        points = self._judged.scores.points
        return points / BEST if self.normalise else points

    def _start(self, task: AnyTask) -> None:
        self._task = task

    def _observed(self) -> str:
        return self.wording.observation(self._task)

    def _check(self, judge: Judge | None, data_path: str | None) -> None:
        for name, low, high in (
            ("num_items", 2, len(ITEMS)),
            ("num_required", 1, self.clinics.num_items - 1),
            ("num_conditions", 3, len(CONDITIONS)),
        ):
            value = getattr(self.clinics, name)
            check_between(f"data.env.{name}", value, low, high, f"Choose one of {low} to {high}.")
        if self.protocol == "compact":
            named = judge and type(judge).__name__
            check_unused(Learn2Ask, "with protocol=compact", data_path=data_path, judge=named, form=self.form)
