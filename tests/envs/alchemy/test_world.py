"""Alchemy's rules; what it says beside them is in dialogues.txt."""

from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.types import Split


def test_the_rules_list_all_elements_by_tier_and_state_neither_a_recipe_nor_a_target_nor_which_are_decoys():
    env = Alchemy(noise_min=0.3, noise_max=0.3, max_tier_gap=2)
    task = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    env.reset(options={"task": task})
    assert any(task.spec.decoys)
    for tier, names in enumerate(task.spec.tiers):
        assert f"Tier {tier}: {', '.join(names)}\n" in env.rules + "\n"
    assert "Target" not in env.rules
    assert "=" not in env.rules, "no example can pass for a recipe"
