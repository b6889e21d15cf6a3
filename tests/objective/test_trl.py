"""The losses against the values that TRL's own code gave; `tests/golden/record_trl_losses.py` recorded them."""

import json
from pathlib import Path

import pytest
import torch

from cod_lightning.objective.losses import CISPO, DAPO, GRPO, GSPO, DrGRPO, LossInputs, kl_to_reference

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trl_losses.json").read_text())
OURS = {
    "grpo": GRPO(clip_high=0.3),
    "dr_grpo": DrGRPO(clip_high=0.3, max_tokens=5),
    "dapo": DAPO(),
    "dapo_kl": DAPO(),
    "gspo": GSPO(sequence_low=0.03, sequence_high=0.04),
    "cispo": CISPO(max_ratio=1.2),
}


def test_every_recorded_case_is_compared():
    assert OURS.keys() == GOLDEN["cases"].keys()


@pytest.mark.parametrize("name", OURS)
def test_a_loss_has_the_value_and_gradient_of_trl(name):
    policy, behaviour, reference = (
        torch.tensor(GOLDEN[key], dtype=torch.float64) for key in ("policy", "behaviour", "reference")
    )
    mask = torch.tensor(GOLDEN["mask"])
    policy.requires_grad_()
    loss = OURS[name](
        LossInputs(
            policy_logprobs=policy,
            behaviour_logprobs=behaviour,
            advantages=torch.tensor(GOLDEN["advantages"], dtype=torch.float64)[:, None] * mask,
            action_mask=mask,
            marked=torch.zeros_like(mask),
            episode=torch.arange(len(mask)),
            num_action_tokens=int(mask.sum()),
            num_episodes=len(mask),
        )
    ).loss
    if name.endswith("_kl"):
        loss = loss + 0.04 * kl_to_reference(policy, reference, mask, "k3") / int(mask.sum())
    loss.backward()
    expected = GOLDEN["cases"][name]
    assert loss.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(policy.grad.tolist(), expected["gradient"], atol=1e-9, rtol=0)
