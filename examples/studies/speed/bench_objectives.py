"""What each option of the objective costs, in time and memory, relative to method=rec on the same recorded rollout.

    PYTHONPATH=. python examples/studies/speed/bench_objectives.py [--packs 16] [--siblings 8] [--repeats 5] [--device cpu]

Every file of configs/method, every credit rule, baseline and term is one option, changed alone. A repeat makes one update
with each of them, so that all see the same machine; figures are medians over repeats of the ratio within one. Memory is the most
that is alive at once of the tensors that an update makes, and of a frozen copy of the policy. Of anchors and counterfactuals, the
rollout is played too.
"""

import argparse
import importlib
import statistics
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.credit.baselines import Baseline
from cod_lightning.credit.returns import TaskCredit, TrajectoryCredit
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.lifecycles import ConnectTheDots, Program
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.losses import GSPO
from cod_lightning.objective.terms import KL, EntropyBonus
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group
from examples.studies.speed.packs import training_packs
from examples.studies.speed.recorded import train_on
from examples.studies.speed.results import Table, report, spread, write

CONFIGS = Path(__file__).parents[3] / "configs"
MAX_NEW_TOKENS, PACK_SIZE = 8, 4
ABOUT = (
    "Every file of configs/method, every credit rule, baseline and term, changed alone, on one recorded rollout of levers. "
    "Seconds are ratios within a repeat (median, least to most); memory is the most that is alive at once of the tensors that an "
    "update makes, and of a frozen copy of the policy. What an option is worth in success is in "
    "credit.md, where it was measured."
)
ATTEMPTS = {
    "program=Anchored": Anchored(attempts=4, fraction=0.25),
    "program=Counterfactual": Counterfactual(attempts=2, fraction=0.25),
}
"""Attempts of an update's episodes, played too."""


class Alive(TorchDispatchMode):
    """Counts the bytes of all tensors that were made in it and are still there; an allocator's own habits play no part."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.look(args, counts=False)
        self.look(kwargs, counts=False)
        out = func(*args, **(kwargs or {}))
        self.look(out, counts=True)
        return out

    def look(self, tree: Any, *, counts: bool) -> None:
        for tensor in tree_leaves(tree):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self.known:
                size = storage.nbytes() if counts else 0
                self.known[storage._cdata] = weakref.ref(storage, self.gone(storage._cdata, size))
                self.now += size
                self.peak = max(self.peak, self.now)

    def gone(self, key: int, size: int) -> Any:
        def forget(_: Any) -> None:
            self.now -= size
            self.known.pop(key, None)

        return forget


class Clock(L.Callback):
    """Bytes of the first update, which warms up, and seconds of the second."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.alive = Alive() if batch_idx == 0 else None
        if self.alive is not None:
            self.alive.__enter__()
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self.began
        if self.alive is not None:
            self.alive.__exit__(None, None, None)
            reference = pl_module.reference
            copied = [] if reference is None else reference.parameters()
            self.bytes = self.alive.peak + sum(p.numel() * p.element_size() for p in copied)


def built(spec: Any) -> Any:
    """What a class_path with its init_args makes."""
    if isinstance(spec, list):
        return [built(one) for one in spec]
    if not isinstance(spec, dict) or "class_path" not in spec:
        return spec
    home, _, name = spec["class_path"].rpartition(".")
    given = {k: MAX_NEW_TOKENS if v == "${data.max_new_tokens}" else v for k, v in spec.get("init_args", {}).items()}
    return getattr(importlib.import_module(home), name)(**given)


def options() -> dict[str, dict[str, Any]]:
    """Arguments of the module for every file; method=rec first, to which the others compare."""
    found: dict[str, dict[str, Any]] = {"method=rec": {}}
    found["method=grpo --model.loss GSPO"] = {"loss": GSPO(), "scale": "group", "reweight": None}
    found |= {f"baseline={kind.__name__}": {"baseline": kind()} for kind in Baseline.__subclasses__()}
    found |= {f"credit={type(rule).__name__}": {"credit": rule} for rule in (TaskCredit(), TrajectoryCredit())}
    found |= {
        f"terms+={type(one).__name__}": {"terms": [one]}
        for one in (EntropyBonus(), KL(coefficient=0.04, estimator="k3"))
    }
    for path in sorted((CONFIGS / "method").glob("*.yaml")):
        said = yaml.safe_load(path.read_text())
        said = said.get("model", said)
        found[f"method={path.stem}"] = {key: built(value) for key, value in said.items()}
    return found


PAPERS = ConnectTheDots()


@dataclass
class Machine:
    """What all options share: a policy, and rollouts of it."""

    args: argparse.Namespace

    def __post_init__(self) -> None:
        L.seed_everything(1, verbose=False)
        self.world, self.mechanism = Levers(protocol="compact"), HintContext(protocol="compact")
        self.policy = TinyPolicy(hidden_size=self.args.hidden_size, num_layers=2)
        tokenizer = self.policy.tokenizer(
            beside(self.world, Vocabulary).words() + beside(self.mechanism, Words).words()
        )
        self.chat = Chat(tokenizer)
        self.engine = TransformersEngine(max_dialogues=1024)
        self.engine.bind(self.policy.model(tokenizer).eval(), self.chat.stop_ids)
        self.packs = training_packs(self.world, self.args.packs, PACK_SIZE)

    def roll_out(self, program: Program = PAPERS) -> tuple[list[Group], float]:
        """The groups, and the seconds that they took."""
        sampler = Sampler(engine=self.engine, chat=self.chat, window=self.policy.window, max_new_tokens=MAX_NEW_TOKENS)
        began = time.perf_counter()
        groups = run_groups(
            self.packs,
            self.args.siblings,
            Setting(env=self.world, mechanism=self.mechanism, sampler=sampler, program=program),
        )
        return groups, time.perf_counter() - began

    def update(self, groups: list[Group], module: dict[str, Any]) -> tuple[float, int]:
        clock = Clock()
        train_on(groups, self.chat, GRPOModule(self.policy, **module), clock, 2, self.args.device)
        return clock.seconds, clock.bytes


def num_tokens(groups: list[Group]) -> int:
    """Sampled, or new in prompts, attempts included."""
    episodes = [one for group in groups for life in group.lifecycles for one in life.episodes]
    return sum(len(turn.action_ids) + len(turn.new_ids) for one in episodes for turn in one.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("packs", 16), ("siblings", 8), ("repeats", 5), ("threads", 1), ("hidden_size", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="JSON, and Markdown beside it")
    args = parser.parse_args()
    quieten()
    torch.set_num_threads(args.threads)
    machine = Machine(args)
    machine.roll_out()  # the first one compiles nothing but fills caches
    groups, _ = machine.roll_out()
    updates = {name: (groups, module) for name, module in options().items()}
    rollouts = {}
    for name, program in ATTEMPTS.items():
        ratios = []
        for _ in range(args.repeats):
            alone = machine.roll_out()[1]
            branched, seconds = machine.roll_out(program)
            ratios.append(seconds / alone)
        rollouts[name] = {
            "rollout_seconds": statistics.median(ratios),
            "rollout_tokens": num_tokens(branched) / num_tokens(groups),
            "attempts": statistics.mean(len(life.attempts) for one in branched for life in one.lifecycles),
        }
        updates[name] = (branched, {})
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in updates}
    for _ in range(args.repeats):
        for name, (of, module) in updates.items():
            found[name].append(machine.update(of, module))
    base = found["method=rec"]
    rows = [
        {
            "option": name,
            "update_seconds": spread([s / b for (s, _), (b, _) in zip(one, base, strict=True)]),
            "update_memory": statistics.median(m for _, m in one) / max(1, statistics.median(m for _, m in base)),
            **rollouts.get(name, {}),
        }
        for name, one in found.items()
    ]
    seconds, size = statistics.median(s for s, _ in base), statistics.median(m for _, m in base)
    note = (
        f"Of method=rec: {seconds:.3f} s and {size / 2**20:.1f} MiB an update of {len(segments_of(groups))} rows on {args.device}. "
        "Rollout figures of anchors and counterfactual are relative to a rollout without; attempts are those of a lifecycle."
    )
    table = Table(name="what each option costs, relative to method=rec", about=ABOUT, note=note, rows=rows)
    report(table)
    if args.out is not None:
        command = "PYTHONPATH=. python examples/studies/speed/bench_objectives.py --out docs/results/objectives.json"
        write(args.out, command, table)


if __name__ == "__main__":
    main()
