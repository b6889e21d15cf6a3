"""The losses against values that other libraries' own code gave; `examples/studies/record_library_losses.py` recorded them."""

import json
from pathlib import Path

import pytest
import torch

from cod_lightning.methods.covariance import ClipCov, KLCov
from cod_lightning.objective.losses import CISPO, DAPO, GRPO, GSPO, REC, DrGRPO, LossInputs, UpdateTokens
from cod_lightning.objective.terms import kl_to_reference
from tests.cases import each

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "library_losses.json").read_text())
OURS = {
    "trl grpo": GRPO(clip_high=0.3),
    "trl dr_grpo": DrGRPO(clip_high=0.3, max_tokens=5),
    "trl dapo": DAPO(),
    "trl dapo with k3": DAPO(),
    "trl gspo": GSPO(sequence_low=0.03, sequence_high=0.04),
    "trl cispo": CISPO(max_ratio=1.2),
    "trinity rec one-side": REC(),
    "trinity rec one-side weighted": REC(importance_weights=True),
    "trinity rec two-side weighted": REC(clip="two_side", importance_weights=True),
    "trinity rec ring": REC(clip="ring", outer_low=0.4, outer_high=0.5),
    "trinity rec none": REC(clip="none"),
    "verl clip_cov": ClipCov(drop_fraction=0.99, cov_low=0.1),
    "verl kl_cov": KLCov(penalised_fraction=0.2, penalty=0.7),
}


def test_every_recorded_case_is_compared():
    assert OURS.keys() == GOLDEN["cases"].keys()


@each("name", OURS)
def test_a_loss_has_the_value_and_gradient_of_the_library(name):
    expected, loss = GOLDEN["cases"][name], OURS[name]
    behaviour, reference = (torch.tensor(GOLDEN[key], dtype=torch.float64) for key in ("behaviour", "reference"))
    policy = torch.tensor(expected["policy"], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(GOLDEN["mask"])
    advantages = torch.tensor(GOLDEN["advantages"], dtype=torch.float64)[:, None] * mask
    tokens = UpdateTokens(behaviour_logprobs=behaviour, advantages=advantages, action_mask=mask)
    marked = loss.mark(tokens, seed=0)
    assert marked.any() == name.startswith("verl")
    value = loss(
        LossInputs(
            policy_logprobs=policy,
            behaviour_logprobs=behaviour,
            advantages=advantages,
            action_mask=mask,
            marked=marked,
            episode=torch.arange(len(mask)),
            num_action_tokens=int(mask.sum()),
            num_episodes=len(mask),
        )
    ).loss
    if name.endswith("with k3"):
        value = value + 0.04 * kl_to_reference(policy, reference, mask, "k3") / int(mask.sum())
    value.backward()
    assert value.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(policy.grad, torch.tensor(expected["gradient"], dtype=torch.float64), atol=1e-9, rtol=0)
