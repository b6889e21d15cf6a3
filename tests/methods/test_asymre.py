"""A baseline below the mean; its loop is in tests/credit/test_credited.py."""

import torch

from cod_lightning.credit.returns import TaskCredit
from cod_lightning.methods.asymre import AsymRE
from tests.cases import each
from tests.credit_tables import CreditTable, credited_entries


@each("scale", ["none", "group", "batch"])
def test_a_pack_whose_siblings_do_equally_well_is_filtered_whatever_a_shifted_baseline_gives_it(scale):
    rewards = torch.tensor([[[0.7, 0.0, 0.7]] * 3, [[0.7, 0.0, 0.7], [0.7, 0.0, 0.7], [0.0, 0.0, 0.7]]])
    valid = torch.ones_like(rewards, dtype=torch.bool)
    table = CreditTable(rewards=rewards, valid=valid, action_counts=valid.long(), kinds=torch.tensor([0, 1, 0]))
    found = credited_entries(table.flat(), TaskCredit(), AsymRE(shift=-0.3), scale)
    assert found.packs_with_signal.tolist() == [False, True]
    assert found.figures()["train/zero_variance_packs"] == 0.5
    assert (found.values[:9].abs().max() > 0) == (scale != "group"), "without a filter they are imitated"
