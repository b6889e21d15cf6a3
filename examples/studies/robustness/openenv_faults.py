"""So many lifecycles of each fault of an OpenEnv server: closed connection, no answer, no JSON, wrong types, an error, death.

    PYTHONPATH=. python examples/studies/robustness/openenv_faults.py [--lifecycles 1000] [--out docs/results/openenv_faults.json]

Needs the extra `openenv`. Raises where a lifecycle is lost, counted twice, or counted under another name.

The server is no environment of theirs: their server cannot send what a broken one sends.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import TextPolicy
from cod_lightning.envs.gymnasium_world import GymnasiumTask
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Message, Pack, Split, Task
from tests.openenv_server import Served

SIBLINGS = 4
TIMEOUT_S = 2.0
FAULTS = {
    "closed": "EnvironmentFailure",
    "slow": "WorldHung",
    "frame": "EnvironmentFailure",
    "type": "EnvironmentFailure",
    "error": "EnvironmentFailure",
}
"""What the server does at a step, or at the reset of the second task, and the name under which it has to be counted."""
WRONG: tuple[dict[str, Any], ...] = (
    {"observation": {"text": "x"}, "reward": "much", "done": False},
    {"observation": ["x"], "reward": 0.0, "done": False},
    {"observation": {"text": "x"}, "reward": 0.0, "done": "yes"},
    {"observation": {"other": "x"}, "reward": 0.0, "done": False},
    {"observation": {"text": "x"}, "reward": 1e9, "done": True},
)


class FortyTwo(TextPolicy):
    """Always says 42."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return "<answer>42</answer>"

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return "42"


def serve(port: int) -> None:
    """A server whose tasks say which fault it commits, and when."""
    import uvicorn
    from fastapi import FastAPI, WebSocket

    app = FastAPI()

    @app.get("/schema")
    async def schema() -> dict[str, Any]:
        return {"action": {"properties": {"number": {"type": "integer", "description": "Any."}}}}

    @app.websocket("/ws")
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        task: dict[str, Any] = {}
        while True:
            try:
                asked = json.loads(await socket.receive_text())
            except Exception:
                return
            if asked["type"] == "close":
                return
            if asked["type"] == "reset":
                task = asked["data"]
            fault = task.get("fault") if asked["type"] == task.get("at") else None
            if fault == "closed":
                await socket.close()
                return
            if fault == "slow":
                await asyncio.sleep(3600)
            if fault == "frame":
                await socket.send_text("\x00 no JSON {")
            elif fault == "error":
                await socket.send_json({"type": "error", "data": {"message": "it broke", "code": "EXECUTION_ERROR"}})
            else:
                step = asked["type"] == "step"
                right = {"observation": {"text": "seen"}, "reward": float(step), "done": step}
                wrong = WRONG[task["number"] % len(WRONG)] if fault == "type" else right
                await socket.send_json({"type": "observation", "data": wrong})

    uvicorn.run(app, port=port, log_level="error")


def pack(number: int, fault: str | None) -> Pack:
    """Two tasks; the fault is committed in the first at a step, or, in every second pack, in the second at its reset."""
    late = number % 2 and fault != "type"  # a reward at a reset is not read
    plain = {"fault": None, "at": "", "number": number}
    broken = {"fault": fault, "at": "reset" if late else "step", "number": number}
    specs = [json.dumps(one) for one in ((plain, broken) if late else (broken, plain))]
    tasks = tuple(
        Task(id=str(n), seed=number, spec=GymnasiumTask(options=options, seed=number))
        for n, options in enumerate(specs)
    )
    return Pack(id=f"{fault}/{number}", split=Split.TRAIN, world_seed=number, tasks=tasks)


def play(folder: Path, lifecycles: int) -> dict[str, dict[str, int]]:
    """So many lifecycles of each fault, as many without, and as many with a dead server; by fault, how they are counted."""
    from cod_lightning.envs.openenv_world import OpenEnvWorld

    server = Served(folder, source=f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
                    "from examples.studies.robustness.openenv_faults import serve\nserve(int(sys.argv[1]))\n")  # fmt: skip
    counted: dict[str, dict[str, int]] = {}
    try:
        env = OpenEnvWorld(
            server.url, [{"fault": None, "at": "", "number": 0}], "Say a number.", "number", "text", timeout_s=TIMEOUT_S
        )
        mechanism = HintContext()
        setting = Setting(env=env, mechanism=mechanism, sampler=scripted_sampler(FortyTwo(), mechanism))
        for fault in (None, *FAULTS, "dead server"):
            if fault == "dead server":
                server.kill()
            of = fault if fault in FAULTS else None
            packs = [pack(number, of) for number in range(lifecycles // SIBLINGS)]
            lives = [life for group in run_groups(packs, SIBLINGS, setting) for life in group.lifecycles]
            names = Counter(next((e.fault for e in life.episodes if e.fault), "none") for life in lives)
            counted[fault or "no fault"] = dict(names)
    finally:
        server.kill()
    return counted


def expected(lifecycles: int) -> dict[str, dict[str, int]]:
    """What `play` has to count."""
    names = {"no fault": "none", **FAULTS, "dead server": "EnvironmentFailure"}
    return {fault: {name: lifecycles} for fault, name in names.items()}


def main() -> None:
    """Play, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < SIBLINGS or options.lifecycles % SIBLINGS:
        parser.error(f"--lifecycles has to be a multiple of {SIBLINGS}")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counted = play(Path(folder), options.lifecycles)
    if counted != expected(options.lifecycles):
        raise SystemExit(f"counted {counted}, planted {expected(options.lifecycles)}")
    record = {
        "lifecycles of each": options.lifecycles,
        "counted": counted,
        "timeout_s": TIMEOUT_S,
        "seconds": round(time.perf_counter() - begun),
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
