"""The normalisation with its own backward pass: the values and gradients of transformers' layers, in the same places."""

import copy

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from cod_lightning.forward.rms_norm import RMSNorm, _Normed, use_rms_norm
from tests.cases import each
from tests.forward.small import SMALL


def _layer(size: int) -> Qwen3RMSNorm:
    layer = Qwen3RMSNorm(size, eps=1e-6)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(3))
    return layer


@each("shape", [(7, 12), (2, 3, 4, 6), (1, 1, 96), (5,)])
@each("size", [1e-4, 1.0, 1e4])
def test_values_and_gradients_are_those_of_transformers(shape, size):
    torch.manual_seed(0)
    theirs = _layer(shape[-1])
    ours = RMSNorm(theirs.weight, theirs.variance_epsilon)
    x, gradient = (size * torch.randn(shape)).requires_grad_(), torch.randn(shape)
    assert torch.allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
    found, wanted = (torch.autograd.grad(layer(x), (x, theirs.weight), gradient) for layer in (ours, theirs))
    assert torch.allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5 * float(wanted[0].abs().max()))
    assert torch.allclose(found[1], wanted[1], rtol=1e-4, atol=1e-5)


def test_autocast_does_not_round_a_gradient():
    torch.manual_seed(0)
    theirs = _layer(96)
    ours = RMSNorm(theirs.weight, theirs.variance_epsilon)
    x, gradient = torch.randn(7, 96, requires_grad=True), torch.randn(7, 96)
    wanted = torch.autograd.grad(theirs(x), (x, theirs.weight), gradient)
    with torch.autocast("cpu", torch.bfloat16):  # Lightning's manual backward runs in it
        found = torch.autograd.grad(ours(x), (x, theirs.weight), gradient)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_gradients_equal_finite_differences():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 4, 5, dtype=torch.double), torch.randn(5, dtype=torch.double)
    inputs = (x.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, w: _Normed.apply(x, w, 1e-6), inputs)


def test_in_half_precision_it_rounds_as_transformers_does():
    theirs = _layer(32).bfloat16()
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(RMSNorm(theirs.weight, theirs.variance_epsilon)(x), theirs(x))


def test_a_model_with_it_has_the_same_weights_by_the_same_names_and_the_same_outputs_and_gradients():
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SMALL)).eval()
    before, ids = copy.deepcopy(model), torch.randint(20, (3, 9))
    use_rms_norm(model)
    assert sum(isinstance(m, RMSNorm) for m in model.modules()) == 2 * 4 + 1
    assert list(model.state_dict()) == list(before.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in before.named_parameters()]
    found, wanted = model(input_ids=ids).logits, before(input_ids=ids).logits
    assert torch.allclose(found, wanted, atol=1e-5)
    found.logsumexp(-1).sum().backward()
    wanted.logsumexp(-1).sum().backward()
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4) for a, b in pairs)
    again = copy.deepcopy(model)
    assert torch.equal(again(input_ids=ids).logits, found)


def test_a_layer_that_computes_something_else_is_left_alone():
    model = Gemma3ForCausalLM(Gemma3TextConfig(**SMALL))  # 1 + weight
    for layer in model.modules():
        if type(layer).__name__ == "Gemma3RMSNorm":
            layer.variance_epsilon = layer.eps
    use_rms_norm(model)
    assert not any(isinstance(m, RMSNorm) for m in model.modules())
