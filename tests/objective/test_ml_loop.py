"""LOOP against what the source's own loss gives (apple/ml-loop, `phi_agents/rl/train.py`, read in November 2026).

The rollouts were drawn here; advantages, losses and gradients are the output of its `_compute_adv_estimates` and `_surrogate_loss`
in float64, with its shipped `ppo_epsilon` of 0.1 and the division by a minibatch of 32.
"""

import pytest
import torch

from cod_lightning.credit.baselines import LeaveOneOut
from cod_lightning.credit.table import PerEpisode
from cod_lightning.objective.losses import LOOP, LossInputs
from tests.cases import each

RETURNS = [1.0, 0.25, 0.0, 1.0]
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
def test_loss_and_gradient_are_those_of_the_source(level):
    mask = torch.tensor([[False, *[True] * len(row), *[False] * (6 - len(row))] for row in OLD])
    policy = padded(NEW).requires_grad_()
    inputs = LossInputs(
        policy_logprobs=policy,
        behaviour_logprobs=padded(OLD),
        advantages=torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None] * mask,
        action_mask=mask,
        marked=torch.zeros_like(mask),
        episode=torch.arange(4),
        num_action_tokens=int(mask.sum()),
        num_episodes=32,
    )
    loss = LOOP(level=level)(inputs).loss
    (gradient,) = torch.autograd.grad(loss, policy)
    assert float(loss.detach()) == pytest.approx(LOSS[level], abs=1e-9)
    torch.testing.assert_close(gradient, padded(GRADIENT[level]), atol=1e-9, rtol=0)


def test_advantages_are_those_of_the_source():
    returns = PerEpisode(torch.tensor(RETURNS, dtype=torch.float64).view(1, 4, 1), torch.ones(1, 4, 1).bool())
    assert LeaveOneOut()(returns).values.flatten().tolist() == pytest.approx(ADVANTAGES, abs=1e-12)
