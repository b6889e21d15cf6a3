"""`export`: a trained policy as a Hugging Face folder, with a model card of what was measured and what was not."""

import copy
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import torch
import transformers
import yaml
from transformers import GenerationConfig, PreTrainedModel

from cod_lightning import __version__
from cod_lightning.adapters import adapter_weights, write_adapter, write_adapter_config
from cod_lightning.checkpoints.checkpoint import Checkpoint, read_checkpoint
from cod_lightning.commands.lightning_cli import run_folder
from cod_lightning.commands.parser import Options
from cod_lightning.commands.train import OF_A_RUN, built, model_of
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.errors import ConfigError, answering
from cod_lightning.files import check_folder, scratch_prefix
from cod_lightning.models import PretrainedPolicy
from cod_lightning.models.lora import LoRAPolicy, merged
from cod_lightning.reports import card
from cod_lightning.types import Split, text_of

_LARGEST_FILE = "4GB"
_KEPT = ("seed_everything", "trainer", "model", "data", "torch_threads")
"""Keys of the config that go into the folder: what a further training of this policy needs."""
_OPTIONS: Options = OF_A_RUN | {
    "ckpt_path": (str, ..., "Checkpoint."),
    "out": (str, ..., "Folder to write, which is new or empty."),
    "adapter": (bool, False, "Write the adapter alone, in peft's form."),
}


def run(argv: Sequence[str]) -> int:
    """Load, write into a folder beside, put that in place."""
    cli = built("export", _OPTIONS, argv)
    options, out = cli.config, Path(cli.config.out).resolve()
    if options.adapter and not isinstance(cli.model.policy, LoRAPolicy):
        raise ConfigError("--adapter", "true", "false, since the policy has no adapter", "Leave it out.")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError("--out", out, "a new or empty folder", "Name another one.")
    check_folder(out.parent, "--out")
    checkpoint = read_checkpoint(options.ckpt_path)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix("export", str(out.parent)), dir=out.parent) as beside:
        (folder := Path(beside, "policy")).mkdir()
        model, done = _trained(cli, checkpoint)
        _save(model, cli.datamodule, folder, adapter=options.adapter)
        config = {key: cli.asked[key] for key in _KEPT}
        config["trainer"]["default_root_dir"] = None
        (folder / "run_config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        facts = _facts(cli, checkpoint, model)
        refused = partial(ConfigError, "--ckpt_path", options.ckpt_path, remedy="Use another.")
        with answering(refused, "a checkpoint of which a card can be written"):  # the config in it may be anything
            (folder / "README.md").write_text(card.render(facts), encoding="utf-8")
        folder.replace(out)
    print(f"wrote {options.out}{done}")
    print(f"Push it: hf upload OWNER/NAME {quote(options.out)} --private", file=sys.stderr)
    return 0


def _trained(cli: Any, checkpoint: Checkpoint) -> tuple[PreTrainedModel, str]:
    """The model with the checkpoint's weights, and what was done to them."""
    policy = cli.model.policy
    if isinstance(policy, PretrainedPolicy) and not isinstance(policy, LoRAPolicy):
        cli.datamodule.check_with(policy, elsewhere=True)
        model = policy.skeleton()
        checkpoint.load_into(model)
        return model.eval(), ""
    model = model_of(cli, None)
    kept = checkpoint.load_into(model, policy.base)
    if policy.base is None:
        return model.to(kept).eval(), ""  # pyright: ignore
    if cli.config.adapter:
        return model, ""
    four_bit = policy.base.dtype == "nf4"
    how = "its 4-bit base, dequantised, in bfloat16" if four_bit else policy.base.name
    return merged(model, torch.bfloat16 if four_bit else None).eval(), f": the adapter merged into {how}"


def _save(model: PreTrainedModel, data: RolloutDataModule, folder: Path, *, adapter: bool) -> None:
    """Weights, or the adapter alone; config, tokenizer with its chat template, and how the policy was sampled from."""
    sampling = GenerationConfig(  # plain sampling at temperature 1, which is what training optimises
        do_sample=True,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=data.max_new_tokens,
        eos_token_id=sorted(data.chat.stop_ids),
        pad_token_id=data.chat.pad_id,
    )
    if adapter:
        write_adapter(adapter_weights(model), folder)
        write_adapter_config(model, folder)
        sampling.save_pretrained(folder)
    else:
        model.generation_config = sampling
        model.save_pretrained(folder, max_shard_size=_LARGEST_FILE)
        for weights in folder.glob("*.safetensors"):
            weights.chmod((folder / "config.json").stat().st_mode)  # safetensors leaves them to their owner alone
    data.chat.tokenizer.save_pretrained(folder)


def _facts(cli: Any, checkpoint: Checkpoint, model: PreTrainedModel) -> card.Facts:
    root, data = run_folder(checkpoint.path), cli.datamodule
    pack = drawn_pack(data.env, data.pack_size, 0, 0, Split.TEST)
    with closing(copy.deepcopy(data.env)) as world:
        begun, _ = world.reset(options={"task": pack.tasks[0]})
        observation, rules = text_of(begun), world.rules
    system = data.context.prepare(data.context.empty(), rules, observation).system
    evaluation = None if root is None else root / "evaluation.json"
    kept = (checkpoint.content.get("run_config") or {}).get("config") or {}  # whatever this command was asked with
    parts = {part: {**cli.asked[part], **kept.get(part, {})} for part in ("model", "data", "trainer")}
    versions = {"cod_lightning": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return card.Facts(
        name=Path(cli.config.out).resolve().name,
        run="" if root is None else root.name,
        checkpoint=checkpoint.path.name,
        updates=checkpoint.global_step,
        learnt=checkpoint.content.get("cod_lightning", {}).get("num_moved", 1) > 0,
        written=_time(checkpoint.path),
        config=cli.asked | kept | parts,
        world=data.env.name,
        num_parameters=model.num_parameters(),
        dtype=str(model.dtype).removeprefix("torch."),
        window=cli.model.policy.window,
        prompt=(("system", system), ("user", observation)),
        evaluation=evaluation,
        evaluated=None if evaluation is None or not evaluation.is_file() else _time(evaluation),
        written_by=checkpoint.versions,
        exported_by={**versions, "python": platform.python_version()},
    )


def _time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
