"""Drawing the tasks of a pack: patients of one clinic, or decision points of a file."""

import random
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask, split_of_patient
from cod_lightning.envs.learn2ask.records import Records, RecordTask
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split, Task

_MOST_DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class ClinicPacks:
    """How clinics and their patients are drawn."""

    clinics: Clinics
    whole_conditions: bool
    """Whether a split has conditions of its own; otherwise it has dialogues of its own."""

    def specs(self, split: Split, world_seed: int, num_tasks: int) -> list[ClinicTask]:
        """N patients of one clinic; each depends on the clinic and its own number only."""
        required = self.clinics.draw_protocol(random.Random(derive_seed("learn2ask clinic", world_seed)))
        conditions = self.clinics.conditions_of(split) if self.whole_conditions else self.clinics.conditions
        drawn: list[ClinicTask] = []
        for n in range(num_tasks):
            rng = random.Random(derive_seed("learn2ask patient", world_seed, n))
            for _ in range(_MOST_DRAWS):
                task = self.clinics.draw_patient(rng, required, rng.choice(conditions))
                if self.whole_conditions or split_of_patient(task) is split:
                    drawn.append(task)
                    break
            else:
                expected = f"clinics with a patient of the split {split}"
                raise ConfigError("data.env.num_items", self.clinics.num_items, expected, "Raise it.")
        return drawn

    def any_patient(self, rng: random.Random) -> ClinicTask:
        """Of any clinic and split."""
        condition = rng.choice(self.clinics.conditions)
        return self.clinics.draw_patient(rng, self.clinics.draw_protocol(rng), condition)

    def other_protocol(self, old: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
        """A hidden one that differs from the old."""
        required = old
        while required == old:
            required = self.clinics.draw_protocol(rng)
        return required


def requiring(task: Task, required: tuple[str, ...]) -> Task:
    """The same dialogue in a clinic with another protocol."""
    spec = task.spec
    assert isinstance(spec, ClinicTask), f"task {task.id} is not of a clinic"
    return replace(task, spec=replace(spec, required=required))


def record_specs(
    records: Records, split: Split, split_by: Literal["session", "diagnosis"], world_seed: int, num_tasks: int
) -> list[RecordTask]:
    """N decision points of the split, none twice until all have been used; a longer list begins with the shorter."""
    pool = records.by_split[split]
    if not pool:
        value = f"a file of {len(records.all)} decision points"
        expected = f"one with a {split_by} that falls to the split {split}"
        remedy = "Prepare more dialogues, or set data.env.split_by to session."
        raise ConfigError("data.env.data_path", value, expected, remedy)
    rng = random.Random(world_seed)
    chosen: list[RecordTask] = []
    used: set[int] = set()
    while len(chosen) < num_tasks:
        number = rng.randrange(len(pool))
        while number in used:
            number = rng.randrange(len(pool)) if 2 * len(used) < len(pool) else (number + 1) % len(pool)
        chosen.append(pool[number])
        used.add(number)
        if len(used) == len(pool):
            used.clear()
    return chosen
