"""A training with so many lifecycles of each planted fault, and an evaluation at a server that dies; part of `make soak`.

PYTHONPATH=. python examples/studies/robustness/faults.py [--lifecycles 1000] [--out docs/results/faults.json]
"""

import argparse
import asyncio
import csv
import json
import logging
import math
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from msgspec import structs

from cod_lightning.callbacks import Throughput, WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.engines.base import Completion, Request
from cod_lightning.engines.openai import OpenAIEngine
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.models import EndpointPolicy, TinyPolicy
from cod_lightning.modules import GRPOModule
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.rollout.segments import count_drift
from cod_lightning.types import Episode, EpisodeStatus, Group, Lifecycle, Split
from tests.credit_tables import kept_credit
from tests.faulty_worlds import FaultyLevers
from tests.small_fit import quiet_trainer

PACKS_PER_ROLLOUT = 125
"""100 of them have each fault of the engine in one sibling, 12 or 13 each fault of the world in all eight."""
SIBLINGS, TASKS = 8, 4
EPISODES = 2 * TASKS - 1
ROUND = 10
WORLD_FAULTS = {"raises": "EnvironmentFailure", "hangs": "WorldHung"}
"""Of packs 1 and 2 of every ten (pack 0 is looked at before the run starts): all siblings."""
ENGINE_FAULTS = {
    "raises": "EngineFailure",
    "hangs": "TurnTimeout",
    "empty": "BadCompletion",
    "garbage": "BadCompletion",
}
"""Of siblings 0 to 3 of the other packs; siblings 4 to 7 survive."""
GARBAGE: tuple[dict[str, Any], ...] = (
    {"behaviour_logprobs": (-1.0,) * 99},
    {"behaviour_logprobs": ()},
    {"behaviour_logprobs": (math.nan,)},
    {"action_ids": (10**6,), "behaviour_logprobs": (-1.0,)},
    {"action_ids": (-1,), "behaviour_logprobs": (-1.0,)},
    {"action_ids": ("w",), "behaviour_logprobs": (-1.0,)},
    {"prompt_digest": 7},
    {"stop": None},
)


def planted(index: int, sibling: int) -> tuple[str, str, str]:
    """What is planted in this lifecycle of the training split: who, what, and the name under which it has to be counted."""
    place = (index - 1) % ROUND
    if place < len(WORLD_FAULTS):
        return "world", *list(WORLD_FAULTS.items())[place]
    if sibling < len(ENGINE_FAULTS):
        return "engine", *list(ENGINE_FAULTS.items())[sibling]
    return "", "", ""


class PlantedEngine(TransformersEngine):
    """Fails by plan, each pack at another episode."""

    async def generate(self, request: Request) -> Completion:
        pack, _, rest = request.dialogue.rpartition("#")
        if "/train/" not in pack:
            return await super().generate(request)
        index, (sibling, episode) = int(pack.rpartition("/")[2]), map(int, rest.split("."))
        who, what, _ = planted(index, sibling)
        if who != "engine" or episode != (index // ROUND) % EPISODES:
            return await super().generate(request)
        if what == "raises":
            raise ConnectionError("the engine is broken")
        if what == "hangs":
            await asyncio.sleep(3600)
        said = await super().generate(request)
        wrong = {"action_ids": (), "behaviour_logprobs": ()} if what == "empty" else GARBAGE[index % len(GARBAGE)]
        return structs.replace(said, **wrong)


class Books(RolloutObserver):
    """Keeps what every rollout ended in."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        self.groups += groups if label in ("train", "outage") else ()

    def check(self, num_lifecycles: int) -> dict[str, int]:
        """No lifecycle lost or twice, and rewards missing exactly from the failure on; faults by name."""
        lives = [life for group in self.groups for life in group.lifecycles]
        assert len({(life.pack_id, life.sibling) for life in lives}) == len(lives) == num_lifecycles
        for life in lives:
            failed_at = next((e for e, x in enumerate(life.episodes) if x.error), len(life.episodes))
            assert [x.reward is None for x in life.episodes] == [e >= failed_at for e in range(len(life.episodes))]
            assert life.failed == (failed_at < len(life.episodes))
        assert count_drift(self.groups) == 0
        return dict(Counter(fault for life in lives if (fault := fault_of(life))))


def fault_of(life: Lifecycle) -> str:
    """The name of what ended it, or nothing."""
    return "".join(episode.fault for episode in life.episodes if episode.status is EpisodeStatus.FAILED)


def train(folder: Path, *, rollouts: int, packs: int, updates: int, step_s: float, turn_s: float) -> dict[str, Any]:
    """A real `fit` over packs with planted faults; every count is checked against the plan."""
    L.seed_everything(1, verbose=False)
    engine, books = PlantedEngine(max_dialogues=1024), Books()
    world = ProcessWorld(FaultyLevers(tuple(WORLD_FAULTS), ROUND), num_workers=60, step_s=step_s)
    data = RolloutDataModule(
        world,
        HintContext(protocol="compact"),
        engine,
        pack_size=TASKS,
        group_size=SIBLINGS,
        packs_per_rollout=packs,
        updates_per_rollout=updates,
        rollouts_per_epoch=rollouts,
        val_packs=8,
        max_new_tokens=4,
        deadlines=Deadlines(turn_s=turn_s, stall_s=120),
        max_failed_fraction=0.8,
    )
    data.runner.follow(books)
    policy = TinyPolicy(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=64)
    module, begun = GRPOModule(policy, lr=1e-3), time.perf_counter()
    credits = kept_credit(module)
    logger = CSVLogger(str(folder), name="", version="")
    trainer = quiet_trainer(folder, WeightSync(), Throughput(), logger=logger, log_every_n_steps=1)
    trainer.fit(module, data)
    assert trainer.state.finished
    assert trainer.global_step == rollouts * updates
    assert not engine.decoder.dialogues, "a dialogue still holds its slot"
    found = books.check(rollouts * packs * SIBLINGS)
    expected: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for index, group in enumerate(books.groups):
        for life in group.lifecycles:
            who, what, name = planted(index, life.sibling)
            assert fault_of(life) == name, (life.pack_id, life.sibling, who, what, [e.error for e in life.episodes])
            expected.update([name] if name else [])
            kinds.update([f"{who} {what}"] if name else [])
    assert found == dict(expected) == logged_faults(folder, updates)
    rewards = sum(e.reward is not None for group in books.groups for life in group.lifecycles for e in life.episodes)
    assert sum(int(one.table.valid.sum()) for one in credits) == rewards, "updates are given each of them once"
    return {
        "lifecycles": rollouts * packs * SIBLINGS,
        "planted": dict(sorted(kinds.items())),
        "counted": dict(sorted(found.items())),
        "updates": trainer.global_step,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def logged_faults(folder: Path, updates_per_rollout: int) -> dict[str, int]:
    """Sums of the faults' columns of metrics.csv, one row for each rollout."""
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("time/rollout_s")]
    total: Counter[str] = Counter()
    for row in rows[::updates_per_rollout]:
        counts = {k.removeprefix("faults/"): int(float(v)) for k, v in row.items() if k.startswith("faults/") and v}
        assert sum(counts.values()) == int(float(row["rollout/num_failed"]))
        total.update(counts)
    return dict(total)


class Outage(RolloutObserver):
    """Kills the server once so many episodes have ended, and starts it again once so many lifecycles were lost."""

    def __init__(self, server: "Server", after_episodes: int, for_lifecycles: int) -> None:
        self.server, self.after_episodes, self.for_lifecycles = server, after_episodes, for_lifecycles
        self.episodes = self.lost = self.finished_after = 0
        self.back = False

    def episode(self, episode: Episode) -> None:
        self.episodes += 1
        if self.episodes == self.after_episodes:
            self.server.kill()

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        self.lost += lifecycle.failed
        self.finished_after += self.back and not lifecycle.failed
        if self.lost == self.for_lifecycles and not self.back:
            self.server.start()
            self.back = True


class Server:
    """`tests/small_chat_server.py` in a process of its own, always at the same port."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = Path(__file__).parents[3] / "tests" / "small_chat_server.py"
        self._process = subprocess.Popen([sys.executable, "-S", str(script), str(self.port)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def play_through_an_outage(folder: Path, num_lifecycles: int, max_retries: int) -> dict[str, Any]:
    """Rollouts at an endpoint that dies and comes back; the lost ones are counted, the later ones are whole."""
    server, books = Server(), Books()
    server.start()
    engine = OpenAIEngine("m", f"http://127.0.0.1:{server.port}/v1", timeout_s=20, max_retries=max_retries)
    outage = Outage(server, after_episodes=num_lifecycles // 2, for_lifecycles=num_lifecycles * 3 // 10)
    chunk = num_lifecycles // 4
    data = RolloutDataModule(
        Levers(),
        HintContext(),
        engine,
        pack_size=2,
        group_size=2,
        packs_per_rollout=chunk // 2,
        updates_per_rollout=1,
        val_packs=2,
        max_failed_fraction=1.0,
    )
    begun = time.perf_counter()
    try:
        quiet_trainer(folder, WeightSync()).validate(GRPOModule(EndpointPolicy()), data, verbose=False)
        data.runner.follow(outage)
        data.runner.follow(books)
        for first in range(0, num_lifecycles, chunk):
            indices = range(first, min(first + chunk, num_lifecycles))
            packs = [data.env.sample_pack(split=Split.VALIDATION, index=index, num_tasks=2) for index in indices]
            data.runner.run("outage", partial(run_groups, packs, 1, data.rollouts.setting(), label="outage"))
    finally:
        server.kill()
    counted = books.check(num_lifecycles)
    assert set(counted) == {"EndpointFailure"}
    assert engine.client.usage.failures == {"unreachable": counted["EndpointFailure"]}
    assert num_lifecycles * 3 // 10 <= counted["EndpointFailure"] < num_lifecycles
    assert outage.finished_after >= chunk, "who came after the outage was served"
    return {"lifecycles": num_lifecycles, "counted": counted, "seconds": round(time.perf_counter() - begun, 1)}


def main() -> None:
    """Both runs check every count against the plan and raise where one is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < 100 or options.lifecycles % 100:
        parser.error("--lifecycles has to be a multiple of 100")
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        trained = train(
            Path(folder, "train"),
            rollouts=options.lifecycles // 100,
            packs=PACKS_PER_ROLLOUT,
            updates=5,
            step_s=2.0,
            turn_s=10.0,
        )
        outage = play_through_an_outage(Path(folder, "outage"), options.lifecycles, max_retries=0)
    record = {"training": trained, "server that dies and comes back": outage, "lost or counted twice": 0}
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
