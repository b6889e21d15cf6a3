"""A curriculum: some packs come back, by what came of them: as they were, as a near one, or from where the agent had got to."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.envs.base import HiddenRules, TextEnv, Variants, beside
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, InnerShare
from cod_lightning.rollout.transcript import plain
from cod_lightning.seeds import derive_seed
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource
from cod_lightning.types import Split

Worth = Literal["variance", "regret", "failure"]
SOLVED = (0.05, 0.75)
"""With by=failure, the mean rewards below which a pack counts as hopeless, and above which as solved."""


class Revisits(PackSource):
    """A share of each rollout's packs has been played before; the others are new, as `Uniform` draws them.

    After every rollout each of its packs has a worth, from its rewards; it is kept where that is above 0, and forgotten otherwise.
    Those kept are drawn with probability in proportion to their worth, none twice in a rollout.

    | `by` | worth of a pack, mean over positions of | source |
    | --- | --- | --- |
    | variance | the siblings' variance; p(1-p) for rewards of 0 and 1 | learnability (SFL, arXiv 2408.15099) |
    | regret | the siblings' best less their worst reward | eva (arXiv 2411.00062) |
    | failure | 1 less the siblings' mean, if that is in [0.05, 0.75] | WebRL (arXiv 2411.02337) |

    | `back` | what is played | source |
    | --- | --- | --- |
    | same | the pack again | prioritised level replay (arXiv 2010.03934), SFL |
    | near | of `candidates` other packs the one whose tasks say most of the same | eva, WebRL |
    | continued | the pack from one of its tasks on, with the context of a sibling there | ExIt (arXiv 2509.04575) |

    Sources: SFL (arXiv 2408.15099), eva (arXiv 2411.00062), WebRL (arXiv 2411.02337), prioritised level replay (arXiv
    2010.03934) and ExIt (arXiv 2509.04575), each for what the tables say. What differs: eva's public code has the difference of
    `regret` as `reward_gap`, beside `reward_mean` and `reward_var`. It scales the measure to [0, 1] over the data set before it
    draws prompts by it, without replacement; here packs are drawn in proportion to the difference as it is; eva and WebRL let a
    language model write tasks after those that they found, and WebRL keeps those to which one of its critic's two heads gives a
    value in [0.05, 0.75] (`filter_by_critic` in scripts/gen_task.py of THUDM/WebRL). Here that band is of the mean reward that
    was played, and an environment's own packs are searched, which stay in the training split. SFL draws its levels anew and
    equally often from the best; here what has been played is measured by training itself. ExIt also adds steps of divergence.

    Tasks before the one at which a pack continues come last. A pack that replaces another (`data.resample_packs`) is always
    new.

    Args:
        by: What makes a pack worth coming back to.
        back: As what it comes back.
        share: Of a rollout's packs, in (0, 1), as soon as enough are kept; at least one pack is new.
        capacity: Packs that are kept, those played last.
        candidates: With back=near, packs among which the nearest is searched.
    """

    compares = True

    def __init__(
        self,
        by: Worth = "variance",
        back: Literal["same", "near", "continued"] = "same",
        share: InnerShare = 0.5,
        capacity: Count = 256,
        candidates: Count = 8,
    ) -> None:
        self.by: Worth = by
        self.back, self.share, self.capacity, self.candidates = back, share, capacity, candidates
        self.needs_contexts, self.pack_size = back == "continued", 0
        self.kept: dict[int, tuple[float, PackChoice]] = {}
        """Worth, and what was played, by index; those played last come last."""
        self.num_seen = 0
        """Packs of the run up to the newest whose outcome is known; those waiting are beyond, or were overtaken."""
        self.num_revisits = 0
        self.latest: dict[str, float] = {}
        """Mean worth of the latest rollout's new packs, and of those that came back."""

    def check(self, env: TextEnv, pack_size: int) -> None:
        self.env, self.pack_size = env, pack_size
        if self.back != "continued":
            return
        variants = beside(env, Variants)
        parts = [variants.of_category(name) for name in variants.categories()] or [env]
        packs = [(of, of.sample_pack(split=Split.TRAIN, index=0, num_tasks=pack_size, seed=self.seed)) for of in parts]
        changes = any(beside(of, HiddenRules).changes_at(pack) is not None for of, pack in packs)
        if changes or variants.without_world_memory() is not env:
            expected = f"same or near in {env.name}, whose tasks cannot be taken out of turn: it remembers, or changes"
            raise ConfigError("data.source.back", self.back, expected, "Switch the memory, or the change, off.")

    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        whole = first <= self.num_seen + self.num_waiting  # else packs of this rollout are replaced
        wanted = min(round(self.share * count), count - 1, len(self.kept)) if whole else 0
        new = [PackChoice(index) for index in range(first + wanted, first + count)]
        if wanted < 1:
            return new
        rng = random.Random(derive_seed("revisits", self.seed, first))
        keys = {key: math.log(1 - rng.random()) / worth for key, (worth, _) in self.kept.items()}
        drawn = sorted(keys, key=keys.__getitem__, reverse=True)[:wanted]  # in proportion to worth, without replacement
        return [self._back(self.kept[key][1], first + n + 1) for n, key in enumerate(drawn)] + new

    def observe(self, outcomes: PackOutcomes) -> None:
        rewards, valid = outcomes.credit.table.solved()
        found = worth(rewards, valid, self.by).tolist()
        of_kind: dict[str, list[float]] = {"new": [], "revisited": []}
        for p, (choice, value) in enumerate(zip(outcomes.choices, found, strict=True)):
            of_kind["revisited" if choice.visit else "new"].append(value)
            self.kept.pop(choice.index, None)
            if value > 0:
                played = self._continued(choice, outcomes.contexts[p]) if self.needs_contexts else choice
                self.kept[choice.index] = value, played
        for key in list(self.kept)[: -self.capacity]:
            del self.kept[key]
        self.latest = {f"worth/{kind}": sum(all_) / len(all_) for kind, all_ in of_kind.items() if all_}
        self.num_revisits += len(of_kind["revisited"])
        self.num_seen = max([self.num_seen, *(choice.visit or choice.index + 1 for choice in outcomes.choices)])

    def metrics(self) -> Mapping[str, float]:
        """Packs kept, packs that came back so far, and the mean worth of those and of new ones in the latest rollout."""
        return {"kept": len(self.kept), "revisits": self.num_revisits, **self.latest}

    def state_dict(self) -> dict[str, Any]:
        kept = [[value, asdict(choice)] for value, choice in self.kept.values()]
        return {"kept": kept, "num_seen": self.num_seen, "num_revisits": self.num_revisits, "latest": dict(self.latest)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        choices = [(float(value), PackChoice(**plain)) for value, plain in state_dict["kept"]]
        self.kept = {choice.index: (value, choice) for value, choice in choices}
        self.num_seen, self.num_revisits = state_dict["num_seen"], state_dict["num_revisits"]
        self.latest = dict(state_dict["latest"])

    def _back(self, choice: PackChoice, visit: int) -> PackChoice:
        """That pack as what it comes back; `visit` is a number that no other pack of the run has."""
        if self.back == "continued":
            return replace(choice, visit=visit)
        instead = self._nearest(choice.index, visit) if self.back == "near" else None
        return PackChoice(choice.index, visit=visit, instead=instead)

    def _nearest(self, index: int, visit: int) -> int:
        """Of `candidates` other packs, the index of the one whose tasks say most of the same."""

        def facts(of: int) -> set[str]:
            pack = self.env.sample_pack(split=Split.TRAIN, index=of, num_tasks=self.pack_size, seed=self.seed)
            return {*_facts([plain(task.spec) for task in pack.tasks])}

        places, known = [derive_seed("near", index, visit, one) for one in range(self.candidates)], facts(index)
        return max(places, key=lambda place: _alike(known, facts(place)))

    def _continued(self, choice: PackChoice, contexts: Sequence[Sequence[str | None]]) -> PackChoice:
        """The pack from a task on at which a sibling that solved each once had written something; else as it was played."""
        once = [life for life in contexts if len(life) == self.pack_size]
        places = [(n, text) for life in once for n, text in enumerate(life) if n and text is not None]
        if not places:
            return choice
        rng = random.Random(derive_seed("continued", self.seed, choice.index, choice.visit))
        position, context = rng.choice(places)
        return replace(choice, begin=(choice.begin + position) % self.pack_size, context=context)


def worth(rewards: Float[Tensor, "P K N"], valid: Bool[Tensor, "P K N"], by: Worth) -> Float[Tensor, " P"]:
    """What each pack is worth, from the rewards of its solve episodes; 0 where no two siblings have one at any position.

    >>> worth(torch.tensor([[[1.0], [0.0]], [[1.0], [1.0]]]), torch.ones(2, 2, 1).bool(), "variance")
    tensor([0.2500, 0.0000], dtype=torch.float64)
    """
    rewards = rewards.double()
    count = valid.sum(dim=1)
    mean = torch.where(valid, rewards, 0.0).sum(dim=1) / count.clamp_min(1)
    if by == "variance":
        values = torch.where(valid, (rewards - mean[:, None]) ** 2, 0.0).sum(dim=1) / count.clamp_min(1)
    elif by == "regret":
        values = rewards.masked_fill(~valid, -math.inf).amax(dim=1) - rewards.masked_fill(~valid, math.inf).amin(dim=1)
    else:
        values = 1 - mean
    compared = count >= 2
    found = torch.where(compared, values, 0.0).sum(dim=1) / compared.sum(dim=1).clamp_min(1)
    if by != "failure":
        return found
    solved = 1 - found
    return torch.where(compared.any(dim=1) & (solved >= SOLVED[0]) & (solved <= SOLVED[1]), found, 0.0)


def _facts(value: Any, way: str = "") -> Iterator[str]:
    """Every plain value with the way to it."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _facts(part, f"{way}.{key}")
    else:
        yield f"{way}={value}"


def _alike(one: set[str], other: set[str]) -> float:
    """Share of the facts of both together that both have (Jaccard), in [0, 1]."""
    return len(one & other) / max(1, len(one | other))
