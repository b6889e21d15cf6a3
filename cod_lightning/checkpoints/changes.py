"""What differs between the config that a checkpoint was trained with and the one that is to go on from it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from cod_lightning.checkpoints.checkpoint import Checkpoint
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed

_FREE = (
    "accept_changes", "checkpoint_every", "ckpt_path", "keep_checkpoints", "overwrite", "torch_threads", "sampled_token_budget",
    "data.baseline",
    "data.deadlines.", "data.max_failed_fraction", "data.suites", "trainer.accelerator", "trainer.barebones", "trainer.benchmark",
    "trainer.callbacks", "trainer.default_root_dir", "trainer.detect_anomaly", "trainer.deterministic", "trainer.devices",
    "trainer.enable_", "trainer.limit_test_batches", "trainer.log",
    "trainer.max_", "trainer.min_", "trainer.model_registry", "trainer.num_nodes", "trainer.num_sanity_val_steps",
    "trainer.plugins", "trainer.profiler",
)  # fmt: skip
"""Beginnings of the keys that may differ: how long, where and on how many threads a run goes, what it logs and keeps, what is
played at its end. `trainer.devices` and `num_nodes` count through the number of processes."""
_PLAYED = (
    *("data.env", "data.context", "data.max_new_tokens", "model.policy", "data.program", "data.enable_thinking"),
    *("data.rewrite_history", "data.chat_template_kwargs", "data.system_prompt"),
)
"""Keys of what a policy was trained in and as, and of how its dialogues are put and ended."""
_HOW_BUILT = ("model.policy.weights", "model.policy.path", "model.policy.gradient_checkpointing", "model.policy.dtype")
"""Keys of a policy that its checkpoint replaces, or that change no token."""
_OF_WARM_START = (
    *("warm_start", "seed_everything", "model.policy", "trainer.precision", "data.env", "data.context", "data.program"),
    *("data.pack_size", "data.max_new_tokens"),
)
"""Keys that decide what the warm start is."""
_MOST_LISTED = 30


def check_changes(checkpoint: Checkpoint, config: str, num_processes: int, *, accepted: bool) -> None:
    """Refuse to go on from the checkpoint with another config (YAML), unless that is accepted; then print what changed.

    Everything but `_FREE` has to be the same for the run to be what it would have been without the interruption.
    """
    kept = checkpoint.content.get("run_config")
    if kept is None:
        print(f"warning: {checkpoint.path} does not hold its config; configs are not compared", file=sys.stderr)
        return
    before = {**kept["config"], "number of processes": kept["num_processes"]}
    after = {**yaml.safe_load(config), "number of processes": num_processes}
    changed = [(key, values) for key, values in differences(before, after) if not key.startswith(_FREE)]
    if not changed:
        return
    listed = listed_changes(changed)
    if not accepted:
        expected = f"a checkpoint of a run with this config; between that run and this one changed {listed}"
        remedy = "Undo the changes, or add --accept_changes true to go on with them."
        raise ConfigError("ckpt_path", checkpoint.path, expected, remedy)
    print(f"warning: going on from {checkpoint.path} with changes: {listed}", file=sys.stderr)


def check_same_policy(
    checkpoint: Checkpoint, config: Mapping[str, Any], words: Sequence[str], *, accepted: bool
) -> None:
    """Refuse to play the checkpoint's policy otherwise than it was trained (environment, context, plan, dialogues), unless that is
    accepted.

    With another vocabulary it is refused in any case: the policy's token ids would stand for other words. `words` is the closed
    vocabulary of environment and context, empty for a language model.
    """
    kept = checkpoint.content.get("run_config")
    if kept is None:
        print(f"warning: {checkpoint.path} does not hold its config; nothing is compared", file=sys.stderr)
        return
    parts = [(key, *key.split(".")) for key in _PLAYED]
    known = [one for one in parts if one[2] in kept["config"][one[1]]]  # not all are of earlier versions
    before, after = ({key: at[part][name] for key, part, name in known} for at in (kept["config"], config))
    changed = [(key, said) for key, said in differences(before, after) if not key.startswith(_HOW_BUILT)]
    listed = listed_changes(changed)
    if "vocabulary" in kept and kept["vocabulary"] != derive_seed("vocabulary", *words):
        expected = f"a checkpoint of this vocabulary; its run had other words ({listed or 'with this config'})"
        remedy = "Use the config of its own run; where that is this one, the code of its environment or context has changed since."
        raise ConfigError("ckpt_path", checkpoint.path, expected, remedy)
    if changed and not accepted:
        expected = f"a checkpoint of a policy that was trained so; between its run and this command changed {listed}"
        remedy = "Undo the changes, or add --accept_changes true to play it all the same."
        raise ConfigError("ckpt_path", checkpoint.path, expected, remedy)
    if changed:
        print(f"warning: {checkpoint.path} is played with changes: {listed}", file=sys.stderr)


def check_same_warm_start(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose run began with another warm start than this config's, with which it would be compared."""
    kept = checkpoint.content.get("run_config") or {"config": config}
    if changed := [one for one in differences(kept["config"], config) if one[0].startswith(_OF_WARM_START)]:
        expected = (
            f"that of {checkpoint.path}, which is compared with it; since its run changed {listed_changes(changed)}"
        )
        remedy = "Name the run's own config, add --warm_start null, or --accept_changes true to begin with another."
        raise ConfigError("warm_start", "another", expected, remedy)


def differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys whose values differ, each with `old -> new`; of another class only that it is one.

    >>> list(differences({"lr": 1, "env": {"class_path": "w.A", "size": 3}}, {"lr": 2, "env": {"class_path": "w.B"}}))
    [('lr', '1 -> 2'), ('env', 'A -> B')]
    """
    if before == after:
        return
    same_kind = isinstance(before, Mapping) and isinstance(after, Mapping)
    if not same_kind or before.get("class_path") != after.get("class_path"):
        yield key, f"{_short(before)} -> {_short(after)}"
        return
    for name in dict.fromkeys((*before, *after)):
        inner = f"{key}.{name}" if key else str(name)
        yield from differences(before.get(name), after.get(name), inner.replace(".init_args.", "."))


def listed_changes(changed: Sequence[tuple[str, str]]) -> str:
    """What `differences` found in one line, which a checkpoint of others cannot make long."""
    more = f"; and {len(changed) - _MOST_LISTED:,} more" if len(changed) > _MOST_LISTED else ""
    return "; ".join(f"{key:.200}: {said}" for key, said in changed[:_MOST_LISTED]) + more


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and "class_path" in value:
        return str(value["class_path"]).rpartition(".")[2]
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
