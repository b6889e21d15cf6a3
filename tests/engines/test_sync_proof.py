"""A sync is proven: by what the engine holds, and by what it samples, under the weights of now and of before."""

import copy
import re

import pytest
import torch

from cod_lightning.engines import sync_proof
from cod_lightning.engines.sync_proof import Lag, digest
from examples.studies.planted_syncs import FAULTS, SOUND, SOUND_MERGED, Run
from tests.cases import each

BY_NAME = {fault.name: fault for fault in FAULTS}


@each("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_digest_sees_every_bit_its_place_and_the_shape(dtype):
    one = torch.arange(12).view(3, 4).to(dtype)
    changed = one.clone()
    changed[2, 3] += 1
    others = [changed, one.T, one.view(4, 3), one.flip(0), one.flatten()]
    assert len({digest(tensor) for tensor in [one, *others]}) == 6
    assert digest(one) == digest(copy.deepcopy(one))


def test_a_digest_of_a_large_tensor_is_that_of_all_of_its_parts(monkeypatch):
    monkeypatch.setattr(sync_proof, "_CHUNK", 100)
    one = torch.arange(2 * 100 + 5.0)
    changed, exchanged = one.clone(), torch.cat([one[100:200], one[:100], one[200:]])
    changed[-1] += 1e-3
    assert len({digest(one), digest(changed), digest(exchanged)}) == 3


def test_staleness_is_the_least_squares_share_of_the_way_back_and_noise_as_large_as_the_step_decides_nothing():
    generator = torch.Generator().manual_seed(0)
    new, way, noise = (torch.randn(32, generator=generator) for _ in range(3))
    old = new + 0.1 * way
    found = Lag.of(new + 0.7 * (old - new) + 1e-3 * noise, new, old)
    ways = [(float(e), float(n), float(o)) for e, n, o in zip(new + 0.07 * way + 1e-3 * noise, new, old, strict=True)]
    slope = sum((e - n) * (o - n) for e, n, o in ways) / sum((o - n) ** 2 for _, n, o in ways)
    rest = sum((e - n - slope * (o - n)) ** 2 for e, n, o in ways) / 31
    assert found.share == pytest.approx(slope, rel=1e-4)
    assert found.error == pytest.approx((rest / sum((o - n) ** 2 for _, n, o in ways)) ** 0.5, rel=1e-3)
    assert found.stale
    assert not found.fresh
    generator = torch.Generator().manual_seed(0)
    new, way, noise = (torch.randn(32, generator=generator) for _ in range(3))
    found = Lag.of(new + noise, new, new + 0.1 * way)
    assert not found.stale
    assert not found.fresh
    assert Lag.of(new, new, new).error == float("inf")


# All pairs of faults and precisions are in `make studies` (examples/studies/syncs.py).
@each(("precision", "fault"), [("float32", SOUND)], slow=[("bfloat16", SOUND), ("NF4", SOUND), ("NF4", SOUND_MERGED)])
def test_clean_syncs_raise_no_alarm(precision, fault):
    run = Run(precision, fault)
    assert run(3) == (0, "")
    assert run.sync.last_moved > 0


@pytest.mark.parametrize(
    "fault", [pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (n % 6 > 0)) for n, one in enumerate(FAULTS)]
)
def test_a_planted_fault_is_named_by_the_second_sync(fault):
    precision = next(one for one in ("LoRA on bfloat16", "bfloat16", "NF4") if one in fault.of)
    at, said = Run(precision, fault)(2)
    assert at == 2, said
    assert "sync 2" in said


def test_a_tensor_that_differs_is_named_with_how_far():
    at, said = Run("float32", BY_NAME["one matrix transposed"])(2)
    assert at == 2
    assert re.search(r"o_proj\.weight differs by up to 0\.\d+", said)


@each("precision", ["float32", "NF4"], slow=["bfloat16"])
def test_an_engine_that_cannot_be_looked_into_is_stale_by_its_samples(precision):
    at, said = Run(precision, BY_NAME["always one sync behind"], seen_through=False)(2)
    assert at == 2
    assert "is stale: by the log-probs of 32 tokens it is nearer to the weights of sync 1" in said


@pytest.mark.slow
def test_steps_too_small_for_the_engine_add_up_until_they_show():
    """An adapter in float32 at a rate of 1e-6 over a base in bfloat16: a sync moves less than its rounding."""
    clean = Run("LoRA on bfloat16", SOUND, seen_through=False, lr=2e-5)
    assert clean(12) == (0, "")
    assert clean.sync._probes._left.version < 12
    at, said = Run("LoRA on bfloat16", BY_NAME["always one sync behind"], seen_through=False, lr=1e-3)(12)
    assert 0 < at <= 12, said
