"""The parts of `make gpu` that train: SmolLM2 on packs that it never saw, and a run that is killed and goes on."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from cod_lightning.envs.code_labels import CodeLabels
from cod_lightning.envs.levers.wording import NaturalLevers
from examples.studies.gpu.parts import Rows, attempt
from examples.studies.gpu.sizes import Sizes
from examples.studies.random_twin import make_twin

ROOT = Path(__file__).parents[3]
KEPT = ("evaluation.json", "metrics.csv", "output.txt", "report.html")
"""Files of a run that are kept beside the page, its recorded lifecycles too."""
_TWIN_TIME = "00:00:01:00"
"""Most that the twin trains: none of its answers has been well-formed, and then nothing is learnt from reward."""


def cod(sizes: Sizes) -> Rows:
    """CoD-Train of SmolLM2-135M, its contexts in English. `random twin` has the same architecture and starts from random numbers.
    Runs come one after the other, unless GPU_TOGETHER lets them share the card, where each takes longer and all together less."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        runs = [(f"seed {seed}", seed, sizes.checkpoint) for seed in sizes.seeds]
        if sizes.twin:
            runs.append(("random twin", sizes.seeds[0], str(make_twin(sizes.checkpoint, root / "twin"))))
        if not sizes.together:
            for name, seed, checkpoint in runs:
                yield from _ended(*_fit(root, seed, sizes, checkpoint), name, sizes, time.monotonic() + sizes.run_s)
            return
        end = time.monotonic() + sizes.run_s
        begun = [(name, *_fit(root, seed, sizes, checkpoint)) for name, seed, checkpoint in runs]
        for name, process, run in reversed(begun):
            yield from _ended(process, run, name, sizes, end)


def _ended(process: "subprocess.Popen[bytes]", run: Path, name: str, sizes: Sizes, end: float) -> Rows:
    """Its figures, once it has ended or its time is over."""
    try:
        code = process.wait(timeout=max(1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    _keep(run, sizes, name)
    yield from _evaluated(run, name)
    if code:
        yield {"run": name, "not run": f"ended with {code}: {_last_line(run)}"}


def resume(sizes: Sizes) -> Rows:
    """The smoke run on this device: killed after its sixth update by SIGKILL and resumed, against the run that nothing stopped."""

    def compared() -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            whole, killed = Path(folder) / "whole", Path(folder) / "killed"
            command = [sys.executable, "-m", "cod_lightning", "fit", "--config", "smoke", "--warm_start", "null"]
            kind = "gpu" if sizes.device == "cuda" else "cpu"
            command += [
                "--data.suites",
                "null",
                "--trainer.max_steps",
                "12",
                "--trainer.accelerator",
                kind,
                *sizes.smoke,
            ]
            command += ["--checkpoint_every", "1", "--trainer.default_root_dir"]
            first = subprocess.Popen(
                [*command, str(killed)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while first.poll() is None and len(_metrics(killed)) < 6:
                time.sleep(0.02)
            first.send_signal(signal.SIGKILL)
            first.wait()
            before = len(_metrics(killed))
            subprocess.run([*command, str(whole)], cwd=ROOT, check=True, capture_output=True)
            again = [*command, str(killed), "--ckpt_path", "last"]
            subprocess.run(again, cwd=ROOT, check=True, capture_output=True)
            ours, theirs = _metrics(whole), _metrics(killed)
            unlike = {key for one, other in zip(ours, theirs, strict=True) for key in one if one[key] != other.get(key)}
            unlike = {key for key in unlike if not key.startswith(("time/", "throughput/"))}
            return {
                "updates": len(ours),
                "killed after": before,
                "columns that differ": ", ".join(sorted(unlike)) or "none",
            }

    return [attempt({"run": "smoke"}, compared)]


def _fit(root: Path, seed: int, sizes: Sizes, checkpoint: str) -> tuple["subprocess.Popen[bytes]", Path]:
    """`fit --config pretrained` with the sizes of this machine, begun; its output is a file in its folder."""
    name = f"{seed}-{Path(checkpoint).name}"
    config, run = root / f"fit-{name}.yaml", root / f"run-{name}"
    of = _of(checkpoint, sizes.fit) | {"warm_start": sizes.warm}
    config.write_text(yaml.safe_dump({"defaults": ["/pretrained@_global_", "_self_"]} | of))
    run.mkdir()
    command = [sys.executable, "-m", "cod_lightning", "fit", "--config", str(config), "--seed_everything", str(seed)]
    more = {"COD_LIGHTNING_CACHE": str(root / "cache"), "OMP_NUM_THREADS": "3"}
    with (run / "output.txt").open("wb") as said:
        to = ["--trainer.default_root_dir", str(run)]
        if checkpoint != sizes.checkpoint:
            to += ["--trainer.max_time", _TWIN_TIME]
        return subprocess.Popen([*command, *to], cwd=ROOT, stdout=said, stderr=said, env=os.environ | more), run


def _of(checkpoint: str, values: dict[str, Any]) -> dict[str, Any]:
    model = values.get("model", {})
    arguments = model.get("policy", {}).get("init_args", {}) | {"path": checkpoint}
    return values | {"model": model | {"policy": {"init_args": arguments}}}


def _metrics(run: Path) -> list[dict[str, str]]:
    """Rows of updates."""
    file = run / "metrics.csv"
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row.get("train/gradient_norm")]


def _evaluated(run: Path, name: str) -> Rows:
    """One row with the speed of the last updates, and one for each suite and policy that was played before the run ended."""
    updates = _metrics(run)
    speed = {
        key: _mean(updates[-5:], key) for key in ("time/rollout_s", "time/train_s", "throughput/generated_tokens_s")
    }
    speed |= {"throughput/trained_tokens_s": _mean(updates[-5:], "throughput/trained_tokens_s")}
    yield {"run": name, "policy": f"{len(updates)} updates"} | speed
    file = run / "evaluation.json"
    for suite, found in json.loads(file.read_text())["suites"].items() if file.exists() else ():
        for policy, positions in {"trained": found["positions"], **found["controls"]}.items():
            shown = ["" if one["success"] is None else f"{one['success']:.2f}" for one in positions]
            row = {"run": name, "suite": suite, "policy": policy, "success by position": " ".join(shown)}
            yield row | _notes(run / "lifecycles" / f"test_{suite}_{policy}.jsonl")


def _notes(lifecycles: Path) -> dict[str, float]:
    """Of recorded lifecycles of the levers: shares of the facts seen that the context has after a rewrite, of the facts in contexts
    that are true, and of first pulls that take the lever which the context truly names for the wanted colour."""
    if not lifecycles.exists() or "scripted" in lifecycles.stem:
        return {}
    kept, stated_rightly, pulled = [], [], []
    for line in lifecycles.read_text().splitlines():
        life = json.loads(line)
        task = life["pack"]["tasks"][0]["spec"]
        labels = CodeLabels(task["labels"]["noun"], tuple(task["labels"]["names"]))
        words = NaturalLevers(labels, tuple(task["palette"]))
        truth, seen = dict(enumerate(task["colours"], start=1)), dict[int, str]()
        for episode in life["episodes"]:
            if episode["kind"] == "solve":
                for text in (*(turn["observation"] for turn in episode["turns"]), episode["feedback"]):
                    seen |= words.facts.parse(text)
                goal = life["pack"]["tasks"][episode["position"]]["spec"]["goal"]
                codes = [
                    code for code, colour in words.facts.parse(episode["context_before"]).items() if colour == goal
                ]
                if episode["turns"] and codes and truth[codes[0]] == goal:
                    pulled.append(labels.code_of(episode["turns"][0]["response"])[0] == codes[0])
            elif episode["reward"] is not None:
                noted = words.facts.parse(episode["context_after"])
                kept += [noted.get(code) == colour for code, colour in seen.items()]
                stated_rightly += [truth[code] == colour for code, colour in noted.items()]
    found = {"seen facts noted": kept, "notes true": stated_rightly, "known lever pulled": pulled}
    return {name: sum(of) / len(of) for name, of in found.items() if of}


def _mean(rows: list[dict[str, str]], key: str) -> float:
    found = [float(row[key]) for row in rows if row.get(key)]
    return sum(found) / max(1, len(found))


def _keep(run: Path, sizes: Sizes, name: str) -> None:
    """Copy what a run left that is worth keeping beside the page."""
    if sizes.keep is None:
        return
    to = sizes.keep / name.replace(" ", "_")
    to.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
        if (run / file).exists():
            shutil.copy(run / file, to / file)
    if (run / "lifecycles").exists():
        shutil.copytree(run / "lifecycles", to / "lifecycles", dirs_exist_ok=True)


def _last_line(run: Path) -> str:
    return ((run / "output.txt").read_text(errors="replace").strip().splitlines() or ["no output"])[-1][:300]
