"""What each episode of a training group was credited with, computed again by the run's own rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from cod_lightning.trusted import read_config
from cod_lightning.types import EpisodeKind, Group

if TYPE_CHECKING:
    from cod_lightning.credit.baselines import Baseline
    from cod_lightning.credit.returns import CreditRule


@dataclass(frozen=True, slots=True)
class GroupCredit:
    """Returns and advantages of one group."""

    returns: list[list[float | None]]
    """[K][E]; None where a reward that it needs is missing."""
    advantages: list[list[float | None]]
    """[K][E]; None where nothing can be compared, and in episodes that are not trained on."""


@dataclass(frozen=True, slots=True)
class Credit:
    """The rules of a run, from its `config.yaml`."""

    rule: "CreditRule"
    baseline: "Baseline"
    scale: str
    """none, group or batch."""
    reweighted: bool
    """Whether the training tilts the advantages further (`model.reweight`)."""
    group_size: int
    """K, siblings of a complete group."""
    kinds: tuple[EpisodeKind, ...] = tuple(EpisodeKind)
    """Those that were trained on."""

    def of(self, group: Group) -> GroupCredit | None:
        """For a complete group; None where siblings are missing."""
        from cod_lightning.credit.credited import credited
        from cod_lightning.credit.table import episode_table, facts_of

        complete = [life.sibling for life in group.lifecycles] == list(range(self.group_size))
        if not complete or any(len(life.solves) != len(group.pack) for life in group.lifecycles):
            return None
        table = episode_table([facts_of(group)])
        scale = "group" if self.scale == "group" else "none"
        found = credited(table, self.rule, self.baseline, scale, kinds=self.kinds)
        lengths = [len(life.episodes) for life in group.lifecycles]
        return GroupCredit(
            _known(found.returns.values, found.returns.valid, lengths),
            _known(found.values[: table.num_own], found.valid[: table.num_own], lengths),
        )

    @property
    def remark(self) -> str:
        """What the numbers are, in one sentence."""
        rules = f"{type(self.rule).__name__} and {type(self.baseline).__name__}"
        later = ["scaling by the batch"] * (self.scale == "batch") + ["RED"] * self.reweighted
        before = f", before {' and '.join(later)} (for that the whole rollout would be needed)" if later else ""
        return f"Advantages are computed again from the rewards of all siblings with {rules}{before}."


def credit_of(config: Path) -> Credit | str:
    """The rules of the run with that `config.yaml`, or why they cannot be known."""
    try:
        loaded = read_config(config)
        model, group_size = loaded["model"], int(loaded["data"]["group_size"])
        from cod_lightning.credit.baselines import Baseline
        from cod_lightning.credit.returns import CreditRule

        parser = ArgumentParser(exit_on_error=False)
        parser.add_subclass_arguments(CreditRule, "credit")
        parser.add_subclass_arguments(Baseline, "baseline")
        named = {"credit": model["credit"], "baseline": model["baseline"]}
        built: Any = parser.instantiate_classes(parser.parse_object(named))
        kinds = tuple(map(EpisodeKind, model.get("trained_kinds") or EpisodeKind))
        return Credit(
            built["credit"], built["baseline"], model["scale"], model["reweight"] is not None, group_size, kinds
        )
    except FileNotFoundError:
        return "No advantages: the run has no config.yaml, which names the credit rule."
    except (Exception, SystemExit) as error:  # what a foreign class_path raises costs the advantages, not the report
        return f"No advantages: config.yaml names no credit that could be built ({type(error).__name__}: {error})."


def _known(values: Any, valid: Any, lengths: Sequence[int]) -> list[list[float | None]]:
    """[K][E] of lifecycles of so many episodes."""
    found = iter([value if is_known else None for value, is_known in zip(values.tolist(), valid.tolist(), strict=True)])
    return [list(islice(found, length)) for length in lengths]
