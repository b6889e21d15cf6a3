"""Which packs a run plays."""

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.types import Split
from tests.small_fit import small_fit
from tests.stubs import WordWorld


def test_training_packs_go_by_the_run_s_seed_and_those_of_validation_are_the_same_in_every_run(tmp_path):
    drawn = set()

    class Noting(WordWorld):
        def sample_pack(self, *, split, index, num_tasks, seed=0):
            drawn.add((split, seed))
            return super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)

    small_fit(tmp_path, WeightSync(), world=Noting(), seed=5, rollouts_per_epoch=1)
    assert drawn == {(Split.TRAIN, 5), (Split.VALIDATION, 0)}
