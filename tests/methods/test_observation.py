"""A training on what the environment says."""

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.methods.observation import ObservationLoss
from tests.small_fit import Updates, small_fit
from tests.stubs import WordWorld


def test_observations_are_what_comes_after_the_first_action_and_the_policy_did_not_sample(tmp_path):
    """In a training of it alone the policy learns what its world shows, and its actions have no other gradient."""
    updates = Updates()
    module = {"terms": [ObservationLoss(coefficient=1.0)], "baseline": TermsAlone(), "reweight": None}
    small_fit(tmp_path, WeightSync(), updates, world=Alike(max_turns=3), module=module, lr=3e-2, rollouts_per_epoch=5)
    for batch in updates.batches:
        for row in range(len(batch)):
            ids, mask = batch.token_ids[row, : batch.lengths[row]], batch.action_mask[row]
            first = mask.nonzero()[0].item()
            expected = [t > first and not mask[t] for t in range(len(ids))]
            assert batch.observation_mask[row].tolist() == expected + [False] * (len(mask) - len(ids))
    first, *_, last = (update["train/observation_loss"] for update in updates.values)
    assert last < 0.5 * first


class Alike(WordWorld):
    """Always shows the same."""

    def step(self, action):
        return "w3 w4", *super().step(action)[1:]
