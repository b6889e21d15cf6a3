"""Records what TRL's own loss gives on random rows: `python tests/golden/record_trl_losses.py trl-1.16.0-py3-none-any.whl`.

TRL is not installed: of `GRPOTrainer` in the wheel (`pip download trl --no-deps`) only the method `_compute_loss` is executed,
with a stand-in for the trainer. The numbers go to `trl_losses.json`, which `tests/objective/test_trl.py` compares with.
"""

import ast
import json
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon_high": 0.3},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon_high": 0.3},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo_kl": {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.04},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.03, "epsilon_high": 0.04},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.2},
}


def compute_loss(wheel: str) -> Any:
    """The method as a function of (trainer, model, inputs)."""
    source = zipfile.ZipFile(wheel).read("trl/trainer/grpo_trainer.py").decode()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    (method,) = (
        node
        for node in classes["GRPOTrainer"].body
        if isinstance(node, ast.FunctionDef) and node.name == "_compute_loss"
    )
    names: dict[str, Any] = {"torch": torch, "nanmin": torch.min, "nanmax": torch.max}
    exec(compile(ast.Module([method], []), wheel, "exec"), names)
    return names["_compute_loss"]


def stand_in(policy: torch.Tensor, **options: Any) -> SimpleNamespace:
    """A trainer of one process that does not accumulate."""
    own = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x
    )
    defaults = {
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "beta": 0.0,
        "max_completion_length": 5,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "aux_loss_enabled": False,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "accelerator": own,
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "model": SimpleNamespace(training=True),
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (policy, torch.zeros_like(policy), None),
    }
    return SimpleNamespace(**(defaults | options))


def main(wheel: str) -> None:
    """Write the golden file."""
    method, rng = compute_loss(wheel), torch.Generator().manual_seed(7)
    behaviour = -3 * torch.rand(5, 8, generator=rng, dtype=torch.float64)
    policy = behaviour + 0.4 * torch.randn(5, 8, generator=rng, dtype=torch.float64)
    reference = behaviour + 0.4 * torch.randn(5, 8, generator=rng, dtype=torch.float64)
    mask = torch.rand(5, 8, generator=rng) < 0.7
    advantages = torch.randn(5, generator=rng, dtype=torch.float64)
    ids = torch.zeros(5, 8, dtype=torch.long)
    out: dict[str, Any] = {
        "source": f"{Path(wheel).name}: GRPOTrainer._compute_loss",
        "behaviour": behaviour.tolist(),
        "policy": policy.tolist(),
        "reference": reference.tolist(),
        "mask": mask.tolist(),
        "advantages": advantages.tolist(),
        "cases": {},
    }
    for name, options in CASES.items():
        leaf = policy.clone().requires_grad_()
        given = {
            "prompt_ids": ids,
            "prompt_mask": ids,
            "completion_ids": ids,
            "completion_mask": mask.long(),
            "advantages": advantages,
            "old_per_token_logps": behaviour,
            "ref_per_token_logps": reference,
            "num_items_in_batch": mask.sum(),
        }
        loss = method(stand_in(leaf, **options), None, given)
        loss.backward()
        out["cases"][name] = {"loss": loss.item(), "gradient": leaf.grad.tolist()}
    Path(__file__).with_name("trl_losses.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
