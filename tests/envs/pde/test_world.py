"""PDE Discovery: noise and packs; what it says is in dialogues.txt."""

from cod_lightning.envs.pde.library import FAMILIES
from cod_lightning.types import Split
from tests.envs.pde.cases import natural


def test_noise_is_a_function_of_the_task_and_of_the_number_of_the_sample():
    twice = '<point x="0.5" t="0.05"/>' * 2
    first, second = natural(), natural()
    task = first.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    for env in (first, second, first):
        env.reset(options={"task": task})
        env.step(f"<answer><sample_pde_data>{twice}</sample_pde_data></answer>")
    one, two, *later = first._desk.merged
    assert (one, two) == tuple(second._desk.merged)
    assert len({one, two, *later}) == 4, "an earlier attempt's samples count"
    assert abs(one.u - two.u) < 0.02


def test_the_benchmark_takes_its_templates_in_turn():
    env = natural(family="physical_full_eval_4000", max_terms=3)
    for index in (0, 13, 24, 26):
        spec = env.sample_pack(split=Split.TEST, index=index, num_tasks=1).tasks[0].spec
        template = FAMILIES["physical_full_eval_4000"][index % 25]
        assert {(t, 1 if c > 0 else -1) for t, c in spec.equation} == set(template)
