"""One environment in this process, behind an OpenEnv server and as a taskset of verifiers, trained alike: are all numbers equal?

    PYTHONPATH=. PROTOCOLS_PYTHON=VENV/bin/python python examples/studies/same_curves.py --out docs/results/same_curves.json

This Python needs openenv; PROTOCOLS_PYTHON needs verifiers. A tiny policy guesses a hidden number, from random weights.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).parents[2]
LARGEST = 12
WORLDS = f'''
import gymnasium

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Vocabulary, text_space
from cod_lightning.envs.gymnasium_world import GymnasiumWorld
from cod_lightning.envs.openenv_world import OpenEnvWorld
from cod_lightning.envs.programs import VerifiersWorld
from cod_lightning.types import EpisodeStatus

RULES = "Guess a number."
TASKS = [{{"hidden": n}} for n in range(1, {LARGEST} + 1)]
UNREAD = "Not a number. The task is over."


class SpelledVocabulary(Vocabulary):
    def words(self):
        said = [RULES, "Your first guess?", UNREAD, "is right. too low. too high."]
        return (*" ".join(said).split(), *(text for n in range({LARGEST} + 1) for text in (str(n), f"<answer>{{n}}</answer>")))


class Spelled:
    """What all three have in common."""

    companions = (SpelledVocabulary,)
    rules = property(lambda self: RULES)

    def step(self, action):
        seen, *rest = super().step(action)
        return (UNREAD if self.status is EpisodeStatus.MALFORMED else seen, *rest)


class Number(gymnasium.Env):
    """The hidden number in this process."""

    observation_space = action_space = text_space()

    def reset(self, *, seed=None, options=None):
        self.hidden, self.turns, self.malformed = options["hidden"], 0, False
        return "Your first guess?", {{}}

    def step(self, action):
        guess, self.malformed = answer_of(action)
        if self.malformed:
            return UNREAD, 0.0, True, False, {{}}
        self.turns, guess = self.turns + 1, int(guess)
        verdict = "right" if guess == self.hidden else "too low" if guess < self.hidden else "too high"
        over = guess == self.hidden or self.turns == 3
        return f"{{guess}} is {{verdict}}.", float(guess == self.hidden), over, False, {{}}


class Native(Spelled, GymnasiumWorld):
    def __init__(self):
        super().__init__(Number(), TASKS, RULES, 3, "hidden", sum_rewards=True, world_name="numbers")

    @property
    def status(self):
        return EpisodeStatus.MALFORMED if self.env.malformed else super().status


class Served(Spelled, OpenEnvWorld):
    def __init__(self, base_url: str):
        super().__init__(base_url, TASKS, RULES, "number", "text", 3, "hidden", world_name="numbers")


class Taskset(Spelled, VerifiersWorld):
    def __init__(self, python: str, tokenizer: str):
        super().__init__(
            {{"taskset": {{"id": "hidden_number_v1"}}}}, tokenizer, python, {{"name": "default"}}, RULES, "hidden",
            max_turns=3, num_processes=3, world_name="numbers",
        )

    def play(self, system, access):
        feedback, reward = super().play(system, access)
        self._outcome = "malformed" if feedback == UNREAD else self._outcome
        return feedback, reward
'''


def trained(folder: Path, world: str, arguments: dict[str, str], updates: int, seed: int) -> list[dict[str, str]]:
    """The rows of metrics.csv of a short training, timing aside."""
    lines = "".join(f"      {key}: {value}\n" for key, value in arguments.items())
    given = f"\n    init_args:\n{lines}" if arguments else "\n"
    (folder / f"{world}.yaml").write_text(
        "defaults:\n  - recipe: tiny\n  - _self_\nwarm_start: null\ndata:\n  env:\n    class_path: numbers_worlds."
        + f"{world}{given}  suites: null\n  packs_per_rollout: 8\n  group_size: 4\n  pack_size: 3\n  val_packs: 8\n"
        + f"  max_new_tokens: 8\n  rollouts_per_epoch: {updates}\n  updates_per_rollout: 1\n"
        + "model: {lr: 3.0e-3, policy: {init_args: {window: 256, hidden_size: 64, num_layers: 2}}}\n"
    )
    run = folder / f"{world}-{seed}"
    command = [
        sys.executable,
        "-m",
        "cod_lightning",
        "fit",
        "--config",
        f"{world}.yaml",
        "--seed_everything",
        str(seed),
    ]
    command += ["--trainer.default_root_dir", str(run), "--trainer.max_epochs", "1", "--torch_threads", "1"]
    paths = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]


def exported(folder: Path, run: Path) -> Path:
    """The policy's tokenizer in a folder, its roles as plain words: verifiers leaves special tokens out of what it reads."""
    out = folder / "policy"
    command = [
        sys.executable,
        "-m",
        "cod_lightning",
        "export",
        "--trust",
        "--ckpt_path",
        str(run / "checkpoints" / "last.ckpt"),
    ]
    paths = os.pathsep.join([str(folder), str(ROOT)])
    subprocess.run(
        [*command, "--out", str(out)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
    )
    kept = PreTrainedTokenizerFast.from_pretrained(out)
    plain = PreTrainedTokenizerFast(
        tokenizer_file=str(out / "tokenizer.json"), eos_token=kept.eos_token, clean_up_tokenization_spaces=False
    )
    plain.chat_template = kept.chat_template
    plain.save_pretrained(out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--worlds", nargs="+", default=["Native", "Served", "Taskset"])
    parser.add_argument("--folder", type=Path, help="Where runs are kept.")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp())).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "numbers_worlds.py").write_text(WORLDS)
    numbers = f"range(1, {LARGEST} + 1)"
    module = (
        (ROOT / "examples" / "protocols" / "hidden_number_v1.py").read_text().replace("(3, 8, 13, 21, 26, 30)", numbers)
    )
    read = module[
        module.index("                found = re.fullmatch") : module.index("                if segment.terminated")
    ]
    count = r"""                said = segment.last_reply or ""
                once = said.count("<answer>") == said.count("</answer>") == 1
                found = re.search(r"<answer>\s*(\d{1,3})\s*</answer>", said) if once else None
"""
    (folder / "hidden_number_v1.py").write_text(module.replace(read, count))
    from tests.openenv_server import Served

    found: dict[str, list[list[dict[str, str]]]] = {}
    for seed in options.seeds:
        found.setdefault("Native", []).append(trained(folder, "Native", {}, options.updates, seed))
        if "Served" in options.worlds:
            server = Served(folder)
            try:
                rows = trained(folder, "Served", {"base_url": server.url}, options.updates, seed)
            finally:
                server.kill()
            found.setdefault("Served", []).append(rows)
        if "Taskset" in options.worlds:
            tokenizer = exported(folder, folder / f"Native-{seed}")
            arguments = {"python": os.path.abspath(os.environ["PROTOCOLS_PYTHON"]), "tokenizer": str(tokenizer)}
            found.setdefault("Taskset", []).append(trained(folder, "Taskset", arguments, options.updates, seed))
    differing = {
        world: sorted(
            {
                name
                for run, native in zip(runs, found["Native"], strict=True)
                for row, its in zip(run, native, strict=True)
                for name in row
                if row[name] != its.get(name)
            }
        )
        for world, runs in found.items()
    }
    columns = [k for k in found["Native"][0][0] if k.startswith(("val", "rollout/token", "rollout/num_r"))]
    last = {w: [{k: v for k, v in run[-1].items() if k in columns} for run in runs] for w, runs in found.items()}
    result = {
        "updates": options.updates, "seeds": options.seeds, "columns_compared": len(found["Native"][0][0]),
        "rows_compared": sum(map(len, found["Native"])), "differing_columns": differing, "curves": found, "last": last,
    }  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "curves"}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
