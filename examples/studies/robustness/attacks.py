"""Attacks, counted: damaged stores and runs, hostile texts, garbage of worlds, starts at once, long texts. 0 of each is the aim.

PYTHONPATH=. python examples/studies/robustness/attacks.py --out docs/results/attacks.json [--attacks written_texts ...]

What is not asked for stays as `--out` has it.
"""

import argparse
import contextlib
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from cod_lightning import cli
from cod_lightning.commands.doctor import run as doctor
from cod_lightning.commands.report import run as report
from cod_lightning.deployment import ContextStore
from cod_lightning.envs.dataset.records import read_rows
from cod_lightning.errors import ForgedRole
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind, EpisodeStatus, Group, Message, Role
from examples.studies.robustness import attacks_by_load as by_load
from examples.studies.robustness import attacks_by_neighbours as by_neighbours
from examples.studies.robustness import attacks_by_text as by_text
from examples.studies.robustness.damages import absurd, damage, refused
from tests.hostile_texts import HOSTILE, RAW
from tests.real_templates import EIGHT, family_tokenizer
from tests.records import group, turn
from tests.reports.made_runs import write_logprobs, write_run
from tests.rollout.test_forged_roles import NORMALISERS, forged
from tests.rollout.test_forged_roles import texts as spelling_texts

_NUM_TASKS = 12


def lived(folder: Path) -> ContextStore:
    """The store of an agent after a few tasks."""
    store = ContextStore(folder)
    store.claim({"world": "levers", "stream": "test/0"})
    for n in range(_NUM_TASKS):
        for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE):
            episode = Episode(
                kind=kind,
                position=n,
                status=EpisodeStatus.COMPLETED,
                reward=n / _NUM_TASKS,
                success=n % 2 == 0,
                feedback=f"what came of task {n} " * 20,
                context_after=f"note {n} " * 50 if kind is EpisodeKind.UPDATE else "",
            )
            store.add(f"task-{n}", episode, float(n), None if kind is EpisodeKind.SOLVE else "{}")
    return store


def content(store: ContextStore) -> list[Any]:
    """All that a store says."""
    newest = store.current()
    single = [store.version(number) for number in range(newest.version + 1)]
    return [
        store.identity,
        list(store.versions()),
        single,
        newest,
        list(store.episodes()),
        store.num_solved(),
    ]


def damaged_stores(num: int) -> dict[str, int]:
    """One of the files of a killed agent's store is damaged; it is then refused in one line, or says exactly what it said."""
    counts: dict[str, int] = dict.fromkeys(("damages", "refused", "unchanged", "tracebacks", "changed"), 0)
    with tempfile.TemporaryDirectory() as root:
        living = lived(Path(root) / "living")
        expected = content(living)
        shutil.copytree(Path(root) / "living", Path(root) / "whole")
        living.close()
        for number in range(num):
            folder, rng = Path(root) / str(number), random.Random(f"stores/{number}")
            shutil.copytree(Path(root) / "whole", folder)
            damage(rng.choice(sorted(folder.iterdir())), rng)
            counts["damages"] += 1
            with refused(counts, f"store {number}"):
                store = ContextStore(folder, create=number % 2 == 0)
                try:
                    same = content(store) == expected
                    store.add("next", Episode(**_next()), 0.0, None)
                    counts["unchanged" if same else "changed"] += 1
                finally:
                    store.close()
            shutil.rmtree(folder)
    return counts


def _next() -> dict[str, Any]:
    ended = {"status": EpisodeStatus.COMPLETED, "reward": 1.0, "success": True}
    return {"kind": EpisodeKind.SOLVE, "position": _NUM_TASKS} | ended


def damaged_runs(num: int) -> dict[str, int]:
    """A file of a run is damaged, or a value in it absurd; `report` and `doctor` say what they can, or refuse in one line."""
    counts: dict[str, int] = dict.fromkeys(("damages", "reports", "doctors", "refused", "tracebacks"), 0)
    groups = [_saying(name, f"note {name}") for name in "abc"]
    with tempfile.TemporaryDirectory() as root:
        whole = write_run(Path(root) / "whole", groups)
        write_logprobs(whole, groups)
        files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
        for number in range(num):
            rng = random.Random(f"runs/{number}")
            folder = Path(root) / str(number)
            shutil.copytree(whole, folder)
            path = folder / rng.choice(files)
            (absurd if number % 2 and path.suffix in (".json", ".jsonl") else damage)(path, rng)
            counts["damages"] += 1
            with refused(counts, f"run {number}, {path.name}"):
                with contextlib.redirect_stdout(io.StringIO()):
                    report([str(folder)])
                counts["reports"] += 1
            with refused(counts, f"run {number}, {path.name}"):
                with contextlib.redirect_stdout(io.StringIO()):
                    doctor([str(folder)])
                counts["doctors"] += 1
            shutil.rmtree(folder)
    return counts


def damaged_rows(num: int) -> dict[str, int]:
    """A file of questions is damaged; its rows are read, or it is refused in one line."""
    counts: dict[str, int] = dict.fromkeys(("damages", "read", "refused", "tracebacks"), 0)
    rows = [{"prompt": f"question {n}", "answer": str(n)} for n in range(40)]
    with tempfile.TemporaryDirectory() as root:
        lines, parquet = (Path(root) / f"rows.{kind}" for kind in ("jsonl", "parquet"))
        table = pa.Table.from_pylist(rows)
        for number in range(num):
            lines.write_text("\n".join(map(json.dumps, rows)))
            pq.write_table(table, parquet)
            path = (lines, parquet)[number % 2]
            damage(path, random.Random(f"rows/{number}"))
            counts["damages"] += 1
            with refused(counts, f"rows {number}, {path.name}"):
                list(read_rows(str(path), ("prompt", "answer")))
                counts["read"] += 1
    return counts


def hostile_text(number: int) -> str:
    """A random one, most of it control characters."""
    rng = random.Random(f"texts/{number}")
    kinds = (
        lambda: rng.randrange(0xA0),
        lambda: rng.choice((0x202E, 0x2066, 0x2028, 0x1B)),
        lambda: rng.randrange(0x3000),
    )
    text = "".join(chr(rng.choice(kinds)()) for _ in range(40)) + rng.choice(HOSTILE)
    return text.encode("utf-8", "replace").decode()


def hostile_texts(num: int) -> dict[str, int]:
    """Texts out of sequences that act on a terminal go through every way in which a command prints."""
    counts: dict[str, int] = dict.fromkeys(("texts", "outputs", "raw_controls", "tracebacks"), 0)
    with tempfile.TemporaryDirectory() as root:
        for number in range(num):
            text = hostile_text(number)
            store = ContextStore(Path(root) / str(number))
            store.add("t", Episode(**(_next() | {"position": 0, "feedback": text})), 0.0, None)
            update = _next() | {"kind": EpisodeKind.UPDATE, "position": 0, "context_after": text}
            store.add("t", Episode(**update), 0.0, "{}")
            store.close()
            state = ["--state", str(Path(root) / str(number))]
            for argv in (["context", "log", *state], ["context", "show", *state], [text]):
                shown = io.StringIO()
                with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                    try:
                        cli.main(argv)
                    except Exception as error:
                        print(f"text {number}: {type(error).__name__}: {error}", file=sys.__stderr__)
                        counts["tracebacks"] += 1
                counts["outputs"] += 1
                counts["raw_controls"] += len(RAW.findall(shown.getvalue()))
            counts["texts"] += 1
            shutil.rmtree(Path(root) / str(number))
    return counts


def written_texts(num: int, at_once: int = 20) -> dict[str, int]:
    """Such texts stand in every field of a run's lifecycles: transcripts and report."""
    counts: dict[str, int] = dict.fromkeys(("texts", "files", "raw_controls", "elements"), 0)
    honest = _written(["harmless"] * at_once)[1]
    for begin in range(0, num, at_once):
        texts = [
            f"{hostile_text(number)}<script>alert(1)</script><img src=x>" for number in range(begin, begin + at_once)
        ]
        files, elements = _written(texts)
        counts["texts"] += len(texts)
        counts["files"] += len(files)
        counts["raw_controls"] += sum(len(RAW.findall(file)) for file in files)
        counts["elements"] += abs(elements - honest)
    return counts


def _written(texts: list[str]) -> tuple[list[str], int]:
    """What is written of a run with these texts, and how many elements its page has."""
    groups = [_saying(f"pack {n}", text) for n, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as root:
        folder = write_run(Path(root), groups)
        with contextlib.redirect_stdout(io.StringIO()):
            report([str(folder)])
        page = (folder / "report.html").read_text("utf-8")
        return [page, *map(Path.read_text, folder.rglob("*.jsonl"))], len(re.findall("<[a-z]", page))


def _saying(name: str, text: str) -> Group:
    """Two lives of two tasks, in which everything says this, the entries of contexts too."""
    events = tuple(EntryEvent(kind, text, text) for kind in EntryEventKind)
    made, lives = group(name, [[True, False], [False, True]]), []
    for life in made.lifecycles:
        episodes = []
        for one in life.episodes:
            turns = tuple(structs.replace(t, observation=text, response=text) for t in one.turns or (turn(text),))
            said = {"feedback": text, "context_before": text, "context_after": text, "entries": events}
            episodes.append(structs.replace(one, turns=turns, **said))
        lives.append(structs.replace(life, episodes=tuple(episodes)))
    return structs.replace(made, lifecycles=tuple(lives))


def forged_roles(num: int) -> dict[str, int]:
    """Texts that spell control tokens, whole, in pieces and disguised, as messages of eight chat templates."""
    counts: dict[str, int] = dict.fromkeys(("templates", "prompts", "forged", "refused"), 0)
    for family in EIGHT:
        counts["templates"] += 1
        for normaliser in NORMALISERS.values():
            chat = Chat(family_tokenizer(family, normaliser))
            shape = (Role.SYSTEM, Role.USER)
            opening, continuation = chat.opening([Message(role, "x") for role in shape]), chat.continuation("x", None)
            for text in spelling_texts(num):
                counts["prompts"] += 2
                try:
                    counts["forged"] += forged(chat, chat.opening([Message(role, text) for role in shape]), opening)
                    counts["forged"] += forged(chat, chat.continuation(text, None), continuation)
                except ForgedRole:
                    counts["refused"] += 1
    return counts


_START = (
    "import shutil, sys\n"
    "from cod_lightning import files\n"
    "from cod_lightning.engines.vllm_folder import WeightFolder\n"
    "for _ in range(int(sys.argv[2])):\n"
    "    files.sweep.cache_clear()\n"
    "    try:\n"
    "        folder = WeightFolder(sys.argv[1]); (folder.root / 'a').write_text('b'); folder.close()\n"
    "    except OSError as error: print(error)"
)


def weight_folders(num: int, at_once: int = 4) -> dict[str, int]:
    """Processes make, sweep and remove weight folders at the same time."""
    with tempfile.TemporaryDirectory() as root:
        argv = [sys.executable, "-c", _START, root, str(num // at_once)]
        started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(at_once)]
        said = [process.communicate()[0] for process in started]
        failed = sum(process.returncode != 0 for process in started)
        return {
            "starts": num // at_once * at_once,
            "errors": sum(len(one.splitlines()) for one in said) + failed,
            "left": len(list(Path(root).iterdir())),
        }


_LEAK = (
    "import resource, time\n"
    "from cod_lightning.rollout.group import collected_by_growth\n"
    "class Loop:\n"
    "    def __init__(self): self.itself, self.weight = self, b'x' * 2**20\n"
    "with collected_by_growth():\n"
    "    for _ in range(2000): Loop(); time.sleep(.001)\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
)


def cycles() -> dict[str, int]:
    """A world's 2,000 MiB in cycles, within what a rollout runs in: the most that the process held, in MiB."""
    done = subprocess.run([sys.executable, "-c", _LEAK], capture_output=True, text=True, check=True)
    return {"left_mib": 2000, "peak_mib": int(done.stdout)}


def caches() -> dict[str, int]:
    """Prompts of 1,100 tokens, all different: what is kept of them, in MiB."""
    chat = Chat(family_tokenizer("qwen3"))
    tracemalloc.start()
    for number in range(20_000):
        chat.continuation(f"{number} " + "up " * 366, None)
    kept = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"prompts": 20_000, "peak_mib": kept // 2**20}


def main() -> None:
    """Run all, write the counts, and fail where a count is not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="Of the numbers below.")
    parser.add_argument("--attacks", nargs="+", default=None)
    options = parser.parse_args()
    attacks: dict[str, Callable[[], dict[str, int]]] = (
        {
            "damaged_stores": lambda: damaged_stores(int(300 * options.share)),
            "damaged_runs": lambda: damaged_runs(int(900 * options.share)),
            "damaged_rows": lambda: damaged_rows(int(3000 * options.share)),
            "hostile_texts": lambda: hostile_texts(int(1000 * options.share)),
            "written_texts": lambda: written_texts(int(1000 * options.share)),
            "forged_roles": lambda: forged_roles(int(1000 * options.share)),
            "weight_folders": lambda: weight_folders(int(14_900 * options.share)),
            "cycles": cycles,
            "caches": caches,
        }
        | by_text.attacks(options.share)
        | by_neighbours.attacks(options.share)
        | by_load.attacks(options.share)
    )
    kept: dict[str, dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else {}
    counts: dict[str, dict[str, Any]] = {}
    for name in options.attacks or attacks:
        begun = time.perf_counter()
        counts[name] = attacks[name]()
        counts[name]["seconds"] = round(time.perf_counter() - begun)
        print(f"{name}: {counts[name]}", flush=True)
        options.out.write_text(json.dumps(kept | counts, indent=1) + "\n")
    bad = {f"{a}.{k}": v for a, of in counts.items() for k, v in of.items() if k in _ZERO and v}
    assert not bad, bad
    most = {"cycles": 600, "caches": 200, "large_reports": 700}
    assert all(10 < counts[a]["peak_mib"] < most[a] for a in most.keys() & counts.keys()), counts


_ZERO = (
    "tracebacks",
    "changed",
    "raw_controls",
    "elements",
    "forged",
    "errors",
    "left",
    *by_text.ZERO,
    *by_neighbours.ZERO,
    *by_load.ZERO,
)

if __name__ == "__main__":
    main()
