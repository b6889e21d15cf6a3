"""Kills deployed agents at random moments and looks at what their stores hold; part of `make soak`.

PYTHONPATH=. python examples/studies/robustness/deploy_kills.py [--kills 200] [--tasks 200] [--out docs/results/deploy_kills.json]

First ten agents with a hint, a tenth of the kills each. Then, for each memory with entries, an agent in a house of 32 doors that is
killed until it has solved `--tasks` tasks, beside one that never is: its store has to end the same. Both are scripted, so that
times (wall, one core) are those of memory, store and environment.
"""

import argparse
import json
import random
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from rich.progress import track

from cod_lightning.contexts import ContextMechanism
from cod_lightning.deployment import ContextStore
from cod_lightning.envs.doors import Doors
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.types import EpisodeKind
from tests.deployment.test_agent import kill_and_check, states_after

MEMORIES: dict[str, ContextMechanism] = {
    "notebook": NotebookContext(),
    "skills": SkillsContext(),
    "episodes": EpisodesContext(),
}


def hints(kills: int) -> dict[str, int]:
    """Ten agents, a tenth of the kills each."""
    done, each = 0, max(1, kills // 10)
    for agent in track(range(10), description="killing"):
        with tempfile.TemporaryDirectory() as folder:
            done += kill_and_check(Path(folder), each, 2000, random.Random(agent))
    return {"kills": 10 * each, "tasks_finished": done, "finished_tasks_lost": 0, "stores_damaged": 0}


def memory(mechanism: ContextMechanism, num_tasks: int) -> dict[str, Any]:
    """One agent that is killed until it is through, and one that is not."""
    env, rng, kills, done = Doors(num_doors=32), random.Random(0), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        killed, whole = Path(folder) / "killed", Path(folder) / "whole"
        while done < num_tasks:
            done = kill_and_check(killed, 1, num_tasks, rng, env, mechanism, most_s=0.25 + 0.01 * done)
            kills += 1
        same = states_after(killed, num_tasks, env, mechanism) == states_after(whole, num_tasks, env, mechanism)
        assert same, "the store of the agent that was killed is not that of the one that never was"
        store = ContextStore(whole)
        episodes = list(store.episodes())
        state = store.current().state
        store.close()
        began = [one.began for one in episodes if one.episode.kind is EpisodeKind.SOLVE]
        times = [1000 * (later - earlier) for earlier, later in pairwise(began)]
        return {
            "tasks": num_tasks,
            "kills": kills,
            "finished_tasks_lost": 0,
            "stores_damaged": 0,
            "same_as_never_killed": same,
            "store_kib": round(store.path.stat().st_size / 1024),
            "state_kib": round(len(state.encode()) / 1024, 1),
            "task_ms_first_20": round(mean(times[:20]), 1),
            "task_ms_last_20": round(mean(times[-20:]), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = hints(options.kills)
    record["memories"] = {
        name: memory(mechanism, options.tasks) for name, mechanism in track(MEMORIES.items(), description="memories")
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
