"""One whole CoD step as a real checkpoint would run it: sentences, byte-level BPE, Qwen3's architecture and chat template."""

from cod_lightning.callbacks import WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.models import PretrainedPolicy
from cod_lightning.modules import GRPOModule
from tests.random_checkpoint import saved_checkpoint
from tests.real_templates import QWEN3
from tests.small_fit import Updates, quiet_trainer
from tests.stubs import Following


def test_a_natural_language_step_has_no_drift_one_row_an_episode_and_equal_log_probs(tmp_path, monkeypatch):
    world = FrozenLakeObscure(size_min=4, size_max=4, max_turns=3, max_shortest_path=3, length_penalty=0.1)
    # a random model never answers in form, so give it a world that lets every turn pass
    monkeypatch.setattr(
        "cod_lightning.envs.frozen_lake.world.code_of", lambda response, noun, num: (1 + len(response) % num, "")
    )
    data = RolloutDataModule(
        world,
        HintContext(response_limit=None),
        TransformersEngine(),
        pack_size=2,
        group_size=4,
        packs_per_rollout=2,
        updates_per_rollout=1,
        rollouts_per_epoch=1,
        val_packs=2,
        max_new_tokens=12,
    )
    module = GRPOModule(PretrainedPolicy(str(saved_checkpoint(tmp_path, QWEN3)), dtype="float32", window=4000), lr=1e-3)
    updates, groups = Updates(), []
    data.runner.follow(Following(rollout_played=lambda label, found: groups.extend(found)))
    quiet_trainer(tmp_path, WeightSync(), updates, max_steps=1, limit_val_batches=0).fit(module, data)
    (batch,) = updates.batches
    episodes = [e for group in groups for x in group.lifecycles for e in x.episodes]
    assert batch.figures["rollout/token_drift"] == 0
    assert len(batch) == len(episodes) == 2 * 4 * 3
    assert max(len(e.turns) for e in episodes) > 1
    assert updates.values[0]["train/logprob_gap"] <= 1e-4
    texts = [data.chat.tokenizer.decode(row[:n]) for row, n in zip(batch.token_ids, batch.lengths, strict=True)]
    assert all(text.startswith("<|im_start|>system\n") for text in texts)
    assert any("Direction 1" in text and "Map:" in text for text in texts)
    assert any("--- Start of updated hints ---" in text for text in texts)
