"""Size of a deployed agent's folder after many tasks, for every memory; writes them into docs/results/store_sizes.json.

PYTHONPATH=. python examples/studies/store_sizes.py --tasks 2000 --out docs/results/store_sizes.json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from cod_lightning.contexts import ContextMechanism, HintContext
from cod_lightning.deployment import ContextStore
from cod_lightning.envs.doors import Doors
from cod_lightning.methods.acts import ActsContext
from cod_lightning.methods.compacting import CompactingContext
from cod_lightning.methods.constant_state import ConstantStateContext
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from tests.deployment.test_agent import states_after

MEMORIES: dict[str, ContextMechanism] = {
    "hint": HintContext(),
    "notebook": NotebookContext(),
    "skills": SkillsContext(),
    "acts": ActsContext(),
    "constant state": ConstantStateContext(),
    "compacted hint": CompactingContext(HintContext()),
    "episodes": EpisodesContext(),
    "transcript": TranscriptContext(),
}


def size(mechanism: ContextMechanism, num_tasks: int) -> dict[str, Any]:
    """Of one agent in a house of 32 doors, whose player and writer are scripted."""
    with tempfile.TemporaryDirectory() as root:
        folder, begun = Path(root) / "agent", time.perf_counter()
        states_after(folder, num_tasks, Doors(num_doors=32), mechanism)
        seconds = time.perf_counter() - begun
        store = ContextStore(folder)
        state = len(store.current().state.encode())
        store.close()
        whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return {
            "tasks": num_tasks,
            "folder_kib": whole // 1024,
            "state_kib": round(state / 1024, 1),
            "seconds": round(seconds),
        }


def main() -> None:
    """Measure those that the file does not hold yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=list(MEMORIES))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name in options.memories:
        found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
        if found.get(name, {}).get("tasks") != options.tasks:
            one = size(MEMORIES[name], options.tasks)
            print(name, one, flush=True)
            found = json.loads(options.out.read_text()) if options.out.exists() else {}
            options.out.write_text(json.dumps(found | {name: one}, indent=1) + "\n")


if __name__ == "__main__":
    main()
