"""Rows of several lengths, and their log-probs by definition."""

import torch

from tests.credit_tables import made_batch

TINY = {"hidden_size": 64, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64, "window": 256}
LENGTHS = [9, 2, 6, 4]


@torch.no_grad()
def by_definition(model, ids):
    """The log-prob of each token but the first, given those before."""
    scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
    return [float(scores[t - 1, ids[t]]) for t in range(1, len(ids))]


def forward(model, rows):
    """Row by row, where the policy acted."""
    found = torch.zeros(rows.token_ids.shape)
    for row, length in enumerate(rows.lengths.tolist()):
        found[row, 1:length] = torch.tensor(by_definition(model, rows.token_ids[row, :length].tolist()))
    return found.masked_fill(~rows.action_mask, 0.0)


def rows():
    """Right-padded rows of several lengths; all but the first token are actions in the first two, some in the others."""
    rng = torch.Generator().manual_seed(0)
    width = max(LENGTHS)
    lengths = torch.tensor(LENGTHS)
    inside = torch.arange(width) < lengths[:, None]
    mask = inside & (torch.arange(width) > torch.tensor([0, 0, 2, 1])[:, None])
    ids = torch.randint(3, 40, (4, width), generator=rng).masked_fill(~inside, 0)
    return made_batch(torch.tensor([(g, 0, 0) for g in range(4)]), mask, token_ids=ids, lengths=lengths)
