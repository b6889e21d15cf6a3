"""Training steps of TRL's GRPOTrainer, one for every line on standard input; what `bench_end_to_end.py` drives.

    python examples/studies/speed/trl_steps.py --model FOLDER --turns 6 --threads 2 --path rollout_func|environment_factory

Runs in an environment of its own, in which TRL is installed and this project is not. The same model, prompts, turns, tokens and
samples of a step as `our_steps.py`; what TRL leaves open is set to what is fastest here (--micro_batch is tried by the driver).
"""

import argparse
import functools
import json
import os
import sys
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

SECONDS: dict[str, float] = defaultdict(float)
"""By part of a step."""


def timed(name: str, function: Any) -> Any:
    """The function, its seconds added to a part of the step."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            SECONDS[name] += time.perf_counter() - begun

    return call


def reward_of(text: str) -> float:
    """As in `fixed_work.py`."""
    return float(zlib.crc32(text.encode()) & 1)


class World:
    """What `environment_factory` makes; `play` is the tool."""

    observations: tuple[str, ...] = ()

    def reset(self, **_: Any) -> None:
        self.turn, self.last = 0, ""

    def play(self, words: str) -> str:
        """Play.

        Args:
            words: What to say.

        Returns:
            What is seen.
        """
        self.turn, self.last = self.turn + 1, words
        return self.observations[self.turn % len(self.observations)]

    def get_reward(self) -> float:
        return reward_of(self.last)


def rollout(tokenizer: Any, turns: int, observations: list[str]) -> Any:
    """A `rollout_func`: all dialogues turn by turn, the whole prompts generated from."""
    after = [tokenizer(f"<user> {words} <assistant>", add_special_tokens=False)["input_ids"] for words in observations]

    @torch.no_grad()
    def play(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        opened = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True)["input_ids"]
        ids = [list(prompt) for prompt in opened]
        masks: list[list[int]] = [[] for _ in ids]
        last = [""] * len(ids)
        model = trainer.accelerator.unwrap_model(trainer.model)
        for turn in range(turns):
            batch = torch.tensor(ids)
            out = model.generate(
                input_ids=batch,
                attention_mask=torch.ones_like(batch),
                generation_config=trainer.generation_config,
                disable_compile=True,
            )[:, batch.shape[1] :].tolist()
            last = tokenizer.batch_decode(out)
            seen = after[(turn + 1) % len(after)]
            for own, mask, action in zip(ids, masks, out, strict=True):
                own += action
                mask += [1] * len(action)
                if turn < turns - 1:
                    own += seen
                    mask += [0] * len(seen)
        return {
            "prompt_ids": opened,
            "completion_ids": [own[len(prompt) :] for own, prompt in zip(ids, opened, strict=True)],
            "logprobs": None,
            "env_mask": masks,
            "last": last,
        }

    return play


class Commanded(TrainerCallback):
    """Waits for a line before every step, and says afterwards where the time went."""

    def __init__(self, num_episodes: int, sampled: int) -> None:
        self.num_episodes, self.sampled = num_episodes, sampled

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(json.dumps({"ready": True}), flush=True)
        if not sys.stdin.readline().strip():
            os._exit(0)
        SECONDS.clear()
        self.begun = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seconds = time.perf_counter() - self.begun
        parts = {f"{name}_s": value for name, value in SECONDS.items()}
        report = {
            "seconds": seconds,
            "episodes": self.num_episodes,
            "sampled_tokens": self.sampled,
            "trained_tokens": TRAINED["tokens"],
            **parts,
        }
        TRAINED["tokens"] = 0
        print(json.dumps(report), flush=True)


TRAINED = {"tokens": 0}


class Trainer(GRPOTrainer):
    """With a clock for each part."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        return timed("generation", super()._generate)(*args, **kwargs)

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        return timed("generation_and_scoring", super()._generate_and_score_completions)(*args, **kwargs)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        TRAINED["tokens"] += int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum())
        return timed("forward", super().compute_loss)(model, inputs, *args, **kwargs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--path", choices=("rollout_func", "environment_factory"), required=True)
    parser.add_argument("--micro_batch", type=int, default=256)
    parser.add_argument("--continuous_batching", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    said = json.loads((args.model / "fixed_work.json").read_text())
    scale = said["scale"]
    prompts_a_step, siblings, tokens = (scale[name] for name in ("packs", "siblings", "tokens"))
    num_episodes = prompts_a_step * siblings
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.model)
    tokenizer.chat_template = said["template"]
    tokenizer.eos_token = "<never>"  # an id that the model does not have: every turn has as many tokens, at no cost
    # Whatever is said is a call of the tool.
    call = {"type": "function", "function": {"name": "play", "arguments": {"words": "{content}"}}}
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<assistant>",
        "fields": {"tool_calls": {"close": "<never>", "repeats": True, "content": "text", "transform": call}},
    }
    model = AutoModelForCausalLM.from_pretrained(
        args.model, attn_implementation="sdpa", dtype=getattr(torch, scale["dtype"])
    )
    World.observations = tuple(said["observations"])
    prompts = [
        [{"role": "system", "content": said["rules"]}, {"role": "user", "content": said["observations"][0]}]
        for _ in range(prompts_a_step * 1000)
    ]
    config = GRPOConfig(
        output_dir=str(args.out),
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        max_steps=10_000,
        per_device_train_batch_size=args.micro_batch,
        gradient_accumulation_steps=num_episodes // args.micro_batch,
        num_generations=siblings,
        num_iterations=1,
        max_completion_length=tokens if args.path == "rollout_func" else 10_000,
        max_tool_calling_iterations=args.turns - 1,
        generation_kwargs={"max_new_tokens": tokens},
        temperature=1.0,
        beta=0.0,
        scale_rewards="none",
        loss_type="dapo",
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        use_transformers_continuous_batching=args.continuous_batching,
        disable_tqdm=True,
        seed=1,
    )
    more: dict[str, Any] = {}
    if args.path == "rollout_func":
        more["rollout_func"] = rollout(tokenizer, args.turns, said["observations"])
        more["reward_funcs"] = lambda completions, last, **_: [reward_of(text) for text in last]
    else:
        more["environment_factory"] = World
    trainer = Trainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        callbacks=[Commanded(num_episodes, num_episodes * args.turns * tokens)],
        **more,
    )
    trainer.model.generate = timed("generate", trainer.model.generate)
    trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)
    sys.stdout, out = sys.stderr, sys.stdout  # what the trainer prints is not for the driver

    def tell(*values: Any, **kwargs: Any) -> None:
        out.write(" ".join(map(str, values)) + "\n")
        out.flush()

    globals()["print"] = tell
    trainer.train()


if __name__ == "__main__":
    main()
