"""Every policy loss against a loop from its definition, finite differences, and what must not change it."""

import pkgutil
from dataclasses import replace
from importlib import import_module

import torch

from cod_lightning.methods import nft, sdpo
from cod_lightning.objective import losses
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.losses.base import units_of
from tests.cases import each
from tests.loss_inputs import LOSSES, gradient, inputs, rows_of
from tests.objective.test_mismatch import CORRECTIONS

ROOMS = [import_module(f"{losses.__name__}.{one.name}") for one in pkgutil.iter_modules(losses.__path__)]
PUBLIC = [value for room in (*ROOMS, nft, sdpo) for value in vars(room).values() if isinstance(value, type)]
CLASSES = {value for value in PUBLIC if issubclass(value, PolicyLoss)} - {PolicyLoss}
EVERY = each("name", LOSSES)


def test_every_loss_has_a_definition_here():
    assert {type(loss) for loss, _ in LOSSES.values()} == CLASSES


@each("classes", [CLASSES, {type(one) for one in CORRECTIONS}])
def test_options_of_one_name_have_one_default(classes):
    """`--model.loss GSPO` keeps the options that the config's class had under the same names, as does `--model.mismatch`."""
    defaults: dict[str, set] = {}
    for value in classes:
        for option, default in vars(value()).items():
            defaults.setdefault(option, set()).add(default)
    assert {option: found for option, found in defaults.items() if len(found) > 1} == {}


@EVERY
@each("seed", range(4))
def test_a_loss_equals_its_definition_gradients_included(name, seed):
    loss, definition = LOSSES[name]
    x = inputs(seed)
    value, found = gradient(loss, x)
    expected = definition(x)
    (wanted,) = torch.autograd.grad(expected, x.policy_logprobs)
    torch.testing.assert_close(value, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)


@EVERY
@each("stored", [0.0, float("inf"), -float("inf"), float("nan")])
def test_what_is_not_an_action_has_no_gradient_whatever_stands_there(name, stored):
    loss, _ = LOSSES[name]
    x = inputs(4)
    value, found = gradient(loss, x)
    garbage = torch.where(x.action_mask, x.policy_logprobs.detach(), stored)
    wide = torch.nn.functional.pad(garbage, (0, 3), value=stored).requires_grad_()
    padded = {
        k: torch.nn.functional.pad(getattr(x, k), (0, 3)) for k in ("behaviour_logprobs", "advantages", "action_mask")
    }
    again, other = gradient(loss, replace(x, policy_logprobs=wide, **padded))
    torch.testing.assert_close(again, value, atol=1e-12, rtol=0)
    torch.testing.assert_close(other[:, : found.shape[1]], found, atol=1e-12, rtol=0)
    assert (other[:, found.shape[1] :] == 0).all()


@EVERY
def test_splitting_between_episodes_leaves_loss_gradient_and_metrics_unchanged(name):
    loss, _ = LOSSES[name]
    x = inputs(4 if loss.compares_siblings else 5)  # in 4 a sibling is better than another
    value, found = gradient(loss, x)
    cuts = ([0, 1, 6], [2, 3, 4, 5], []) if loss.compares_siblings else ([0, 1, 6], [2], [4, 3, 5])
    parts = [loss(rows_of(x, torch.tensor(rows, dtype=torch.long))) for rows in cuts]
    (split,) = torch.autograd.grad(sum(p.loss for p in parts), x.policy_logprobs)
    torch.testing.assert_close(sum(p.loss for p in parts), value, atol=1e-12, rtol=0)
    torch.testing.assert_close(split, found, atol=1e-12, rtol=0)
    assert sum(part.num_clipped for part in parts) == loss(x).num_clipped


@EVERY
def test_an_episode_of_zero_advantage_has_no_gradient(name):
    loss, _ = LOSSES[name]
    x = inputs(6)
    _, found = gradient(loss, x)
    silent = x.episode == 9
    assert (found[silent] == 0).all()


UNCLIPPED = losses.RLOO | sdpo.SDPO
CLIPPED = [name for name, (loss, _) in LOSSES.items() if not isinstance(loss, UNCLIPPED)]


@each("name", [n for n in CLIPPED if not n.startswith("rec none")])
@each("far", [200.0, float("inf")])
def test_a_ratio_that_overflows_upwards_is_clipped_without_a_nan(name, far):
    loss, _ = LOSSES[name]
    x = inputs(1)
    behaviour = x.behaviour_logprobs.clone()
    row = int((x.advantages.amax(1) > 0).nonzero()[0])
    behaviour[row, 1] = x.policy_logprobs[row, 1].item() - far
    value, found = gradient(loss, replace(x, behaviour_logprobs=behaviour))
    assert value.isfinite()
    assert found.isfinite().all()


@EVERY
def test_autocast_does_not_round_a_loss_or_its_gradient(name):
    loss, _ = LOSSES[name]
    x = inputs(8, dtype=torch.float32)
    exact = gradient(loss, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradient(loss, x)
    assert exact[0].dtype == found[0].dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(exact, found, strict=True))


@EVERY
def test_an_update_without_actions_costs_nothing(name):
    loss, _ = LOSSES[name]
    x = inputs(9)
    blank = torch.zeros_like(x.action_mask)
    nothing = replace(x, action_mask=blank, advantages=x.advantages * 0, num_action_tokens=0, num_episodes=0)
    value, found = gradient(loss, nothing)
    assert value == 0
    assert (found == 0).all()


# ------------------------------------------------------------------ relations between losses


def test_turns_are_runs_of_actions_in_a_row():
    x = inputs(0, width=6, episodes=(1, 1))
    mask = torch.tensor([[1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 1, 1]], dtype=torch.bool)
    units = units_of("turn", replace(x, action_mask=mask))
    assert units.num == 5
    assert units.index[mask].tolist() == [0, 0, 1, 2, 3, 4, 4, 4]
    assert units.sum(torch.ones(2, 6)).tolist() == [2, 1, 1, 1, 3]
