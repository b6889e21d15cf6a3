"""A whole training step, ours against TRL's GRPOTrainer and against one training sample a turn: equal work, steps in turn.

    PYTHONPATH=. python examples/studies/speed/bench_end_to_end.py [--turns 6 24] [--long] [--repeats 7] [--trl PYTHON]

A step is 256 solve episodes (32 prompts, 8 siblings) of a fixed number of turns and of 4 sampled tokens a turn, and one
optimizer update; TRL has no lifecycles, so packs have one task. The tiny Qwen3 of the quick start, the same weights, prompts and
number of tokens for all. With --long it is 8 dialogues of 2,000 tokens, a sixth of them sampled, by a Qwen3 of 25 million
parameters in bfloat16: a stand-in for a language model. TRL runs in an environment of its own (`make_trl_venv.sh`), in its two
ways of many turns (long dialogues: in the faster one); of the micro-batch sizes tried its fastest counts. A step of each is
made in turn, so that all see the same machine.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.models import TinyPolicy
from examples.studies.speed.fixed_work import RULE_WORDS, FixedWork, Scale, scale_of, text
from examples.studies.speed.results import Table, report, spread
from examples.studies.speed.workers import Worker, in_turn

HERE = Path(__file__).parent
TEMPLATE = (
    "{% for message in messages %}{{ '<' + ('user' if message['role'] == 'tool' else message['role']) + '> ' }}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}{{ ' ' + call['function'] | tojson }}{% endfor %}{{ '<never> ' }}"
    "{% else %}{{ message['content'] + ' ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
"""Ours, in which a tool speaks as the user does, and an assistant ends with a token that no model has."""
PER_TURN = "ours, one sample a turn"
LEAST_REPEATS, PER_TURN_REPEATS = 5, 3
"""Of any number of turns, and the most of one sample a turn, whose steps take longest and differ by more than their spread."""


def prepare(folder: Path, scale: Scale) -> None:
    """The model and all that the other side has to know of the work."""
    world, policy = FixedWork(1), TinyPolicy(**scale.sizes)
    tokenizer = policy.tokenizer(
        beside(world, Vocabulary).words() + beside(HintContext(protocol="compact"), Words).words()
    )
    policy.model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Ours puts an end token after an action; the other side's observations have a word more instead.
    seen = [text(scale.observation_words + (n > 0), "observation", n) for n in range(32)]
    rules = text(RULE_WORDS, "rules")
    work = {"template": TEMPLATE, "observations": seen, "rules": rules, "scale": asdict(scale)}
    (folder / "fixed_work.json").write_text(json.dumps(work))


def ours(folder: Path, turns: int, threads: int) -> list[str]:
    """What makes our steps."""
    said = {"model": folder, "turns": turns, "threads": threads, "out": folder / "out"}
    return [sys.executable, str(HERE / "our_steps.py"), *(str(x) for k, v in said.items() for x in (f"--{k}", v))]


def commands(folder: Path, turns: int, args: argparse.Namespace) -> dict[str, list[str]]:
    """Whom to compare; the first is ours."""
    own = ours(folder, turns, args.threads)
    out = {"ours": own} if args.long else {"ours": own, PER_TURN: [*own, "--per_turn"]}
    if args.trl is not None:
        theirs = [str(args.trl), str(HERE / "trl_steps.py"), *own[2:]]
        for path in ("rollout_func",) if args.long else ("rollout_func", "environment_factory"):
            for size in scale_of(turns, long=args.long).micro_batches:
                out[f"TRL {path}, micro-batches of {size}"] = [*theirs, "--path", path, "--micro_batch", str(size)]
    return out


def compare(turns: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each, medians over the repeats."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, scale_of(turns, long=args.long))
        started = {
            n: Worker.start(c, folder / f"{i}.log") for i, (n, c) in enumerate(commands(folder, turns, args).items())
        }
        repeats = max(min(LEAST_REPEATS, args.repeats), args.repeats * args.turns[0] // turns)
        steps = in_turn(started, repeats, {PER_TURN: PER_TURN_REPEATS}, long=args.long)
        for i, (n, worker) in enumerate(started.items()):
            if worker.failure:
                print(f"{n}: {worker.failure}: {(folder / f'{i}.log').read_text()[-2000:]}", file=sys.stderr)
    return [row(turns, n, found, steps["ours"], started[n].failure) for n, found in steps.items()]


def row(
    turns: int, name: str, steps: list[dict[str, float]], ours: list[dict[str, float]], failure: str
) -> dict[str, Any]:
    """Medians, and the ratio to ours within each repeat."""
    if failure or not steps:
        return {"turns": turns, "what": name, "failed": failure or "made no step"}
    middle = {key: statistics.median(step.get(key, 0.0) for step in steps) for key in steps[0]}
    ratios = [step["seconds"] / own["seconds"] for step, own in zip(steps, ours[: len(steps)], strict=True)]
    return {
        "turns": turns,
        "what": name,
        "seconds": middle["seconds"],
        "times_ours": spread(ratios),
        "episodes_s": middle["episodes"] / middle["seconds"],
        "trained_tokens_s": middle["trained_tokens"] / middle["seconds"],
        "trained_tokens_episode": middle["trained_tokens"] / middle["episodes"],
        "sampled_tokens_episode": middle["sampled_tokens"] / middle["episodes"],
        "parts": {k: v for k, v in middle.items() if k.endswith("_s")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, nargs="+", default=[6, 8, 24])
    parser.add_argument(
        "--long", action="store_true", help="8 dialogues of 2,000 tokens, 25 million parameters, bfloat16"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=7,
        help=f"of the first number of turns; of more turns fewer, at least {LEAST_REPEATS}",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--trl", type=Path, default=None, help="Python with TRL; without it TRL is left out, and said so"
    )
    args = parser.parse_args()
    note = "" if args.trl else "TRL was not there (--trl PYTHON): no ratio against it."
    rows = [found for turns in args.turns for found in compare(turns, args)]
    about = "The same with 8 dialogues of 2,000 tokens and a Qwen3 of 25 million parameters in bfloat16."
    about, name = (about, "end to end, long dialogues") if args.long else (__doc__.splitlines()[0], "end to end")
    report(Table(name=name, about=about, note=note, rows=rows))


if __name__ == "__main__":
    main()
