"""Python's part of a rollout: processor time of a turn where the engine answers at once.

    PYTHONPATH=. python examples/studies/speed/bench_turns.py [--packs 32] [--repeats 25]

Lifecycles of the quick start's warm start on 3x3 lakes, eight siblings a pack, played once by the real engine; then the same again,
with its recorded completions for an engine. One thread; microseconds of the process over all turns. Compare two checkouts by
running the one after the other, several times: the least of each is what the machine's other work disturbs least.
"""

import argparse
import asyncio
import time
from typing import Any

from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.engines.transformers import TransformersEngine
from examples.studies.speed.quick_start import QuickStart
from examples.studies.speed.results import Table, report, spread

SIBLINGS = 8


class Recording(TransformersEngine):
    """Keeps what it answers, by the seed of the turn's noise."""

    def __init__(self) -> None:
        super().__init__(max_dialogues=1024)
        self.answers: dict[int, Completion] = {}

    async def generate(self, request: Request) -> Completion:
        """As ever."""
        answer = self.answers[request.noise_seed] = await super().generate(request)
        return answer


class Recorded(Engine):
    """Answers all waiting turns at once, with what was recorded."""

    def __init__(self, answers: dict[int, Completion]) -> None:
        self.answers, self.waiting = answers, list[tuple[int, asyncio.Future[Completion]]]()
        self.task: Any = None

    async def generate(self, request: Request) -> Completion:
        """When every lifecycle that can go on has asked."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self.waiting.append((request.noise_seed, future))
        if self.task is None or self.task.done() or self.task.get_loop() is not loop:
            self.task = loop.create_task(self._answer())
        return await future

    async def _answer(self) -> None:
        while True:
            await asyncio.sleep(0)
            if not self.waiting:
                return
            waiting, self.waiting = self.waiting, []
            for seed, future in waiting:
                future.set_result(self.answers[seed])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packs", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=25)
    args = parser.parse_args()
    start, recording = QuickStart(1), Recording()
    recording.bind(start.model, start.chat.stop_ids)
    packs = start.packs(args.packs)
    wanted = start.play(recording, packs, SIBLINGS, seed=1)
    recorded, taken = Recorded(recording.answers), list[float]()
    recorded.policy_version = recording.policy_version
    for _ in range(args.repeats):
        begun = time.process_time()
        groups = start.play(recorded, packs, SIBLINGS, seed=1)
        taken.append(1e6 * (time.process_time() - begun) / len(recording.answers))
        assert groups == wanted, "played otherwise than it was recorded"
    row = {"lifecycles": args.packs * SIBLINGS, "turns": len(recording.answers), "microseconds": spread(taken)}
    report(Table(name="turns without a model", about=(__doc__ or "").splitlines()[0], rows=[row]))


if __name__ == "__main__":
    main()
