"""The self-test after a weight sync: silent on a sound engine, loud on each planted fault."""

import contextlib
import copy
import gc

import pytest
import torch
from msgspec import structs

from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import EngineMismatch, Stopped
from cod_lightning.models import TinyPolicy
from tests.cases import each
from tests.families import made
from tests.stubs import WordWorld

LEFT_OUT = "model.layers.1.self_attn.o_proj.weight"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    policy = TinyPolicy(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64)
    return policy.model(policy.tokenizer(WordWorld().words()))


@pytest.fixture
def engine(model):
    engine = TransformersEngine()
    engine.bind(model, stop_ids=[2])
    return engine


def synced(engine, model, plant=lambda name, tensor: tensor):
    engine.update_weights([(n, plant(n, t)) for n, t in model.state_dict().items()], engine.policy_version + 1)
    return engine


def test_a_sound_engine_passes_and_its_gap_is_rounding(engine, model):
    for _ in range(3):
        gap = SelfTest()(synced(engine, model), model, window=96)
        assert gap.strict
        assert gap.size < 1e-5
    assert not engine.decoder.dialogues
    assert model.training, "as it was before"


def test_a_signal_in_the_middle_of_it_leaves_no_traceback(engine, model, monkeypatch, caplog):
    def stopped(*_):
        raise Stopped(15)

    monkeypatch.setattr(engine.decoder, "_passes", stopped)
    with pytest.raises(Stopped):
        SelfTest()(synced(engine, model), model, window=96)
    engine.decoder._pumping = None
    gc.collect()
    assert not caplog.records


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda n, t: torch.zeros_like(t) if n == LEFT_OUT else t, "its weights are not the trained ones"),
        (lambda n, t: t.bfloat16().float(), "it computes otherwise"),
        (lambda n, t: torch.full_like(t, torch.nan), "log-prob is nan"),
    ],
    ids=["one projection left out", "base of another precision", "not a number"],
)
def test_a_planted_fault_is_caught_and_described(fault, said, engine, model):
    with pytest.raises(EngineMismatch, match=said) as raised:
        SelfTest()(synced(engine, model, fault), model, window=96)
    assert "after sync 0 TransformersEngine does not sample from the policy that is trained" in str(raised.value)


def test_a_model_that_computes_otherwise_while_it_is_trained_is_found_out():
    noisy, engine = made("mixtral", router_jitter_noise=0.5).train(), TransformersEngine()
    engine.bind(noisy, stop_ids=[2])
    with pytest.raises(EngineMismatch, match="it computes otherwise"):
        SelfTest()(synced(engine, noisy), noisy, window=96)
    SelfTest()(synced(engine, noisy), noisy.eval(), window=96)


def test_weights_that_give_no_number_are_blamed_on_the_training_and_not_on_the_sync(engine, model):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(EngineMismatch, match=r"give no number themselves: lower model\.lr"):
        SelfTest()(synced(engine, broken), broken, window=96)


def test_less_than_float32_on_either_side_loosens_the_default_tolerance(engine, model):
    def half():
        return torch.autocast("cpu", torch.bfloat16)

    gap = SelfTest()(synced(engine, model), model, window=96, context=half)
    assert not gap.strict
    assert 1e-4 < gap.size < 0.25
    with pytest.raises(EngineMismatch, match=r"the mean over all tokens is .*, and at most 0\.0001 apart"):
        SelfTest(tolerance=1e-4)(engine, model, window=96, context=half)


class OneOff(TransformersEngine):
    """Of each completion one log-prob is that much lower."""

    def __init__(self, by, precision):
        super().__init__()
        self.by, self.said_precision = by, precision

    async def generate(self, request):
        found = await super().generate(request)
        first, *others = found.behaviour_logprobs
        self.precision = self.said_precision
        return structs.replace(found, behaviour_logprobs=(first - self.by, *others))


@each(
    ("precision", "by", "passes"),
    [("bfloat16", 0.5, True), ("bfloat16", 3.0, False), ("float32", 0.5, False), ("bfloat16", float("nan"), False)],
)
def test_in_half_precision_the_mean_counts_since_single_tokens_are_far_off_by_rounding(precision, by, passes, model):
    engine = OneOff(by, precision)
    engine.bind(model, stop_ids=[2])
    with contextlib.nullcontext() if passes else pytest.raises(EngineMismatch, match="does not sample from"):
        SelfTest()(synced(engine, model), model, window=96)


@pytest.mark.parametrize("window", [2, 3, 20])
def test_a_small_window_is_enough(window, engine, model):
    assert SelfTest()(synced(engine, model), model, window=window).size < 1e-5


def test_answers_of_unequal_length_are_scored_to_their_ends(model):
    said = []

    class Recording(TransformersEngine):
        async def generate(self, request):
            said.append(await super().generate(request))
            return said[-1]

    def gap(stop_ids):
        said.clear()
        engine = Recording()
        engine.bind(model, stop_ids=stop_ids)
        return SelfTest()(synced(engine, model), model, window=96)

    gap([])
    greedy, hot = said
    early = next(i for i in hot.action_ids[:-1] if i not in greedy.action_ids)
    assert gap([early]).size < 1e-5
    assert len({len(one.action_ids) for one in said}) == 2
