"""Stochastic rounding: exact in expectation, the same however a parameter is shared out, and of use at a small learning rate."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from cod_lightning.training import stochastic_adamw
from cod_lightning.training.stochastic_adamw import StochasticAdamW, noise, rounded
from tests.cases import each
from tests.forked import on_ranks

CHANCES = torch.arange(2**16, dtype=torch.int32)


def parameter(*shape, dtype=torch.bfloat16, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.02
    return torch.nn.Parameter(drawn.to(dtype))


def gradient(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def trained(optimizer, weight, steps, first=0):
    for step in range(first, first + steps):
        weight.grad = gradient(*weight.shape, seed=100 + step).to(weight.dtype)
        optimizer.step()
    return weight.detach().clone()


def test_steps_are_counted_beyond_256_where_bfloat16_is_torch_s_default():
    weight = parameter(4)
    optimizer = StochasticAdamW([weight])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as Lightning does for a step under bf16-true
    try:
        trained(optimizer, weight, 258)
    finally:
        torch.set_default_dtype(before)
    assert int(optimizer.state[weight]["step"]) == 258


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100))
def test_the_mean_over_all_chances_is_the_value_itself(value):
    one = torch.full((2**16,), value, dtype=torch.float32)
    found = rounded(one, CHANCES)
    assert torch.equal(found.to(torch.bfloat16).float(), found), "not all are what bfloat16 has"
    assert found.unique().numel() <= 2
    if abs(value) > 1e-30:  # the mean of denormals is beyond float64's help
        assert float(found.double().mean()) == pytest.approx(float(one[0]), rel=1e-12)


def test_what_bfloat16_has_stays_and_what_is_not_finite_does_too():
    exact = torch.tensor([0.0, -0.0, 1.0, -1.0078125, float("inf"), float("-inf"), float("nan")])
    for chance in (0, 2**16 - 1):
        found = rounded(exact, torch.full((7,), chance, dtype=torch.int32))
        assert torch.equal(found.nan_to_num(7.0), exact.nan_to_num(7.0))


def test_chances_are_uniform_and_those_of_two_steps_have_nothing_to_do_with_each_other():
    first, second = (noise(0, 2**20, [key, 7 * key], torch.device("cpu")) for key in (12345, -98765))
    for found in (first, second):
        counts = torch.bincount(found, minlength=2**16)[: 2**16].double()
        chi_squared = float(((counts - 16) ** 2 / 16).sum())
        assert abs(chi_squared - 65_535) < 5 * (2 * 65_535) ** 0.5
    for one, other in ((first, second), (first[1:], first[:-1]), (first[4096:], first[:-4096])):
        assert abs(float(np.corrcoef(one.numpy(), other.numpy())[0, 1])) < 5 / 2**10


@each("weight_decay", [0.0, 0.1])
def test_in_float32_it_is_adamw(weight_decay):
    ours, theirs = parameter(40, 30, dtype=torch.float32), parameter(40, 30, dtype=torch.float32)
    settings = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": weight_decay}
    found = trained(StochasticAdamW([ours], **settings), ours, 20)
    expected = trained(torch.optim.AdamW([theirs], **settings), theirs, 20)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-8)


def test_at_a_rate_of_1e_6_updates_arrive_that_rounding_to_the_nearest_drops():
    """The same gradient again and again moves each weight by 1e-6 a step."""
    moved = {}
    for name, kind in (("stochastic", StochasticAdamW), ("nearest", torch.optim.AdamW)):
        weight = parameter(400, 250)
        before, direction = weight.detach().float().clone(), gradient(400, 250)
        optimizer = kind([weight], lr=1e-6)
        for _ in range(200):
            weight.grad = direction.to(torch.bfloat16)
            optimizer.step()
        moved[name] = float(((before - weight.detach().float()) * direction.sign()).mean()) / (200 * 1e-6)
    assert moved["stochastic"] == pytest.approx(1.0, abs=0.02)
    assert moved["nearest"] < 0.1


def test_a_run_that_is_resumed_goes_on_bit_for_bit():
    weight = parameter(30, 20)
    optimizer = StochasticAdamW([weight], lr=1e-3, seed=4)
    trained(optimizer, weight, 5)
    again = torch.nn.Parameter(weight.detach().clone())
    other = StochasticAdamW([again], lr=1.0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert all(other.state[again][key].dtype == torch.float32 for key in ("exp_avg", "exp_avg_sq"))
    assert torch.equal(trained(optimizer, weight, 5, first=5), trained(other, again, 5, first=5))


def test_neither_slices_nor_gradients_in_float32_change_the_result(monkeypatch):
    found = []
    for size, dtype in ((2**24, torch.bfloat16), (7, torch.bfloat16), (2**24, torch.float32)):
        monkeypatch.setattr(stochastic_adamw, "STEP_SLICE", size)
        weight = parameter(30, 20)
        weight.grad_dtype = dtype
        optimizer = StochasticAdamW([weight], lr=1e-3)
        for step in range(3):
            weight.grad = gradient(30, 20, seed=step).to(torch.bfloat16).to(dtype)
            optimizer.step()
        found.append(weight.detach())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "rows"), [(2, 8), (3, 7), (3, 2)])
def test_shards_round_like_the_whole(number, rows, tmp_path):
    def on_shards():
        mesh = init_device_mesh("cpu", (number,))
        weight = torch.nn.Parameter(distribute_tensor(parameter(rows, 5).detach(), mesh, [Shard(0)]))
        optimizer = StochasticAdamW([weight], lr=1e-3)
        for step in range(4):
            weight.grad = distribute_tensor(gradient(rows, 5, seed=100 + step).bfloat16(), mesh, [Shard(0)])
            optimizer.step()
        moment = optimizer.state[weight]["exp_avg_sq"]
        assert isinstance(moment, DTensor)
        return weight.detach().full_tensor()  # pyright: ignore

    weight = parameter(rows, 5)
    expected = trained(StochasticAdamW([weight], lr=1e-3), weight, 4)
    for found in on_ranks(number, on_shards, tmp_path):
        assert torch.equal(found, expected)
