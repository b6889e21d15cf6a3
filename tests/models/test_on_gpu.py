"""What only a GPU can show: `pytest -m gpu`. Not yet run."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.adapters import adapter_weights
from cod_lightning.models import LoRAPolicy, QLoRAPolicy
from cod_lightning.models.memory_plan import plan_memory
from cod_lightning.models.sizes import RunSizes, sizes_of
from cod_lightning.objective.logprobs import action_logprobs, scores_bytes
from tests.adapted import adapted, write_base

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
HALF_B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=896,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=4864,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
TOKENS = 4096


@pytest.fixture(scope="module")
def half_b(tmp_path_factory):
    """A random checkpoint of half a billion weights."""
    folder = tmp_path_factory.mktemp("half_b")
    Qwen3ForCausalLM(HALF_B).to(torch.bfloat16).save_pretrained(folder)
    return folder


def loss_of(model, ids):
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return action_logprobs(hidden, model.get_output_embeddings(), ids, mask, entropy_gradient=False)[0].sum()


def test_the_peak_of_an_update_is_within_15_percent_of_the_plan(half_b):
    policy = LoRAPolicy(path=str(half_b), rank=32, window=TOKENS, gradient_checkpointing=True)
    model: torch.nn.Module = policy.model(None).cuda()  # pyright: ignore
    optimizer = torch.optim.AdamW(adapter_weights(model).values(), lr=1e-5)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        loss_of(model, torch.randint(0, 151_936, (1, TOKENS), device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.device("meta"):
        sizes = sizes_of(Qwen3ForCausalLM(HALF_B), 32)
    run = RunSizes(
        weight_bytes=2,
        activation_bytes=2,
        gradient_checkpointing=True,
        num_tokens=TOKENS,
        scores_bytes=scores_bytes(TOKENS, 151_936),
        engine_copies_base=False,
        engine_bytes=0,
        on_gpu=False,
    )
    planned = sum(item.size for item in plan_memory(sizes, run, 2**40, "a GPU").items)
    assert torch.cuda.max_memory_allocated() == pytest.approx(planned, rel=0.15)


def test_gradients_in_4_bits_are_those_on_the_cpu(tmp_path):
    base = write_base(tmp_path)
    ids = torch.randint(0, 40, (2, 24))
    found = []
    for device in ("cpu", "cuda"):
        model: torch.nn.Module = adapted(QLoRAPolicy, base).to(device)
        loss_of(model, ids.to(device)).backward()
        found.append(torch.cat([weight.grad.flatten().cpu() for weight in adapter_weights(model).values()]))
    assert torch.cosine_similarity(*found, dim=0) >= 0.99
