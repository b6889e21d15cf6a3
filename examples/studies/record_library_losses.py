"""Records what other libraries' own losses give on random rows, for `tests/objective/test_libraries.py`.

    pip download --no-deps trl==1.16.0 trinity-rft==0.6.0
    python examples/studies/record_library_losses.py *.whl

Nothing is installed: of each wheel only the function or method that computes the loss is executed, with a stand-in for what
surrounds it. The numbers go to `library_losses.json`.
"""

import __future__

import ast
import json
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

TRL: dict[str, dict[str, Any]] = {
    "trl grpo": {"loss_type": "grpo", "epsilon_high": 0.3},
    "trl dr_grpo": {"loss_type": "dr_grpo", "epsilon_high": 0.3},
    "trl dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "trl dapo with k3": {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.04},
    "trl gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon_low": 0.03,
        "epsilon_high": 0.04,
    },
    "trl cispo": {"loss_type": "cispo", "epsilon_high": 1.2},
}
TRINITY: dict[str, dict[str, Any]] = {
    "trinity rec one-side": {"clip_mode": "one-side"},
    "trinity rec one-side weighted": {"clip_mode": "one-side", "weight": "importance_sampling"},
    "trinity rec two-side weighted": {"clip_mode": "two-side", "weight": "importance_sampling"},
    "trinity rec ring": {"clip_mode": "ring", "epsilon_low_prime": 0.4, "epsilon_high_prime": 0.5},
    "trinity rec none": {"clip_mode": "none"},
}


def pieces(wheel: str, path: str, names: list[str], globals_: dict[str, Any]) -> dict[str, Any]:
    """Functions, methods or classes of a file in a wheel, without decorators and annotations, in a namespace."""
    tree = ast.parse(zipfile.ZipFile(wheel).read(path).decode())
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name in names]
    for node in found:
        node.decorator_list = []
    namespace = {"torch": torch} | globals_
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(list(found), []), wheel, "exec", flags=flags, dont_inherit=True), namespace)
    return namespace


def trl(wheel: str, x: SimpleNamespace, policy: Tensor, options: dict[str, Any]) -> Tensor:
    """`GRPOTrainer._compute_loss` for a trainer of one process that does not accumulate."""
    names = {"nanmin": torch.min, "nanmax": torch.max}
    method = pieces(wheel, "trl/trainer/grpo_trainer.py", ["_compute_loss"], names)["_compute_loss"]
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
        "accelerator": SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "model": SimpleNamespace(training=True),
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (policy, torch.zeros_like(policy), None),
    }
    ids = torch.zeros(x.mask.shape, dtype=torch.long)
    given = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": ids,
        "completion_mask": x.mask.long(),
        "advantages": x.advantages,
        "old_per_token_logps": x.behaviour,
        "ref_per_token_logps": x.reference,
        "num_items_in_batch": x.mask.sum(),
    }
    return method(SimpleNamespace(**(defaults | options)), None, given)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Over action tokens."""
    return (values * mask).sum() / mask.sum()


def trinity(wheel: str, x: SimpleNamespace, policy: Tensor, options: dict[str, Any]) -> Tensor:
    """`RECPolicyLossFn`."""
    home = type("PolicyLossFn", (), {"__init__": lambda self, backend: None})
    path = "trinity/algorithm/policy_loss_fn/rec_policy_loss.py"
    names = {"PolicyLossFn": home, "masked_mean": masked_mean}
    rec = pieces(wheel, path, ["RECPolicyLossFn"], names)["RECPolicyLossFn"]
    return rec(**options)(policy, x.behaviour, x.mask.double(), x.advantages[:, None].expand_as(policy))[0]


def main(wheels: list[str]) -> None:
    """Write the golden file."""
    rng = torch.Generator().manual_seed(7)
    behaviour = -3 * torch.rand(5, 8, generator=rng, dtype=torch.float64)
    x = SimpleNamespace(
        behaviour=behaviour,
        policy=behaviour + 0.4 * torch.randn(5, 8, generator=rng, dtype=torch.float64),
        reference=behaviour + 0.4 * torch.randn(5, 8, generator=rng, dtype=torch.float64),
        mask=torch.rand(5, 8, generator=rng) < 0.7,
        advantages=torch.randn(5, generator=rng, dtype=torch.float64),
    )
    out: dict[str, Any] = {
        "sources": sorted(Path(w).name for w in wheels),
        **{k: v.tolist() for k, v in vars(x).items()},
    }
    out["cases"] = {}
    of = {Path(wheel).name.partition("-")[0].partition("_")[0]: wheel for wheel in wheels}
    for library, compute, cases in (("trl", trl, TRL), ("trinity", trinity, TRINITY)):
        for name, options in cases.items():
            policy = x.policy.clone().requires_grad_()
            loss = compute(of[library], x, policy, options)
            loss.backward()
            assert policy.grad is not None
            out["cases"][name] = {"policy": policy.tolist(), "loss": loss.item(), "gradient": policy.grad.tolist()}
    (Path(__file__).parents[2] / "tests" / "golden" / "library_losses.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
