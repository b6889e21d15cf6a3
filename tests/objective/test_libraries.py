"""The losses against values that other libraries' own code gave; `examples/studies/record_library_losses.py` recorded them.

LOOP is compared with its source (apple/ml-loop, `phi_agents/rl/train.py`, read in November 2026). The rollouts were drawn here;
advantages, losses and gradients are the output of its `_compute_adv_estimates` and `_surrogate_loss` in float64, with its shipped
`ppo_epsilon` of 0.1 and the division by a minibatch of 32.
"""

import json
from pathlib import Path

import pytest
import torch

from cod_lightning.credit.baselines import LeaveOneOut
from cod_lightning.credit.table import PerEpisode
from cod_lightning.objective.losses import CISPO, DAPO, GRPO, GSPO, LOOP, REC, DrGRPO, LossInputs
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
    value = loss(
        LossInputs(
            policy_logprobs=policy,
            behaviour_logprobs=behaviour,
            advantages=advantages,
            action_mask=mask,
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


LOOP_RETURNS = [1.0, 0.25, 0.0, 1.0]
"""Of the rollouts of one task."""
ADVANTAGES = [0.5833333333333333, -0.41666666666666663, -0.75, 0.5833333333333333]
OLD = [
    [-1.518, -1.247, -1.664, -0.159, -0.259],
    [-0.894, -1.722, -1.426],
    [-1.147, -0.58, -0.035, -1.884, -1.089, -1.03],
    [-1.15, -0.861, -0.768, -1.38],
]
NEW = [
    [-1.395, -1.276, -1.719, -0.126, -0.45],
    [-0.948, -1.87, -1.383],
    [-1.055, -0.596, 0.265, -1.91, -1.008, -1.153],
    [-1.164, -1.035, -0.862, -1.524],
]
LOSS = {"token": 0.003380770788407504, "episode": 0.015638787619037836}
GRADIENT = {
    "token": [
        [0.0, -0.0035416225267, -0.00345072710191, -0.00376815300765, -0.00301194172763],
        [0.0041121185178, 0.0, 0.0045309804464],
        [0.00428267508625, 0.00384424734397, 0.00527288596709, 0.00380599644378, 0.00423582381471, 0.0],
        [-0.00449393412099, -0.00382947804922, -0.00414842404667, -0.0039461030185],
    ],
    "episode": [[-0.0161839963681] * 5, [0.0] * 3, [0.0318914294282] * 6, [-0.0119057666532] * 4],
}


def padded(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([[0.0, *row, *[0.0] * (6 - len(row))] for row in rows], dtype=torch.float64)


@each("level", ["token", "episode"])
def test_loop_has_the_value_and_gradient_of_its_source(level):
    mask = torch.tensor([[False, *[True] * len(row), *[False] * (6 - len(row))] for row in OLD])
    policy = padded(NEW).requires_grad_()
    inputs = LossInputs(
        policy_logprobs=policy,
        behaviour_logprobs=padded(OLD),
        advantages=torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None] * mask,
        action_mask=mask,
        episode=torch.arange(4),
        num_action_tokens=int(mask.sum()),
        num_episodes=32,
    )
    loss = LOOP(level=level)(inputs).loss
    (gradient,) = torch.autograd.grad(loss, policy)
    assert float(loss.detach()) == pytest.approx(LOSS[level], abs=1e-9)
    torch.testing.assert_close(gradient, padded(GRADIENT[level]), atol=1e-9, rtol=0)


def test_leave_one_out_gives_the_advantages_of_loop_s_source():
    returns = PerEpisode(torch.tensor(LOOP_RETURNS, dtype=torch.float64).view(1, 4, 1), torch.ones(1, 4, 1).bool())
    assert LeaveOneOut()(returns).values.flatten().tolist() == pytest.approx(ADVANTAGES, abs=1e-12)
