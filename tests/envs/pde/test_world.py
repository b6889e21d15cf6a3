"""PDE Discovery: actions, errors, rewards, endings, memory, packs, parameters."""

import copy
import re

import pytest

from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.pde.library import FAMILIES
from cod_lightning.envs.pde.packs import PDETask
from cod_lightning.envs.pde.verdicts import CANDIDATES, DICTIONARIES, PROBES
from cod_lightning.types import EpisodeStatus, Split, Task

SPEC = PDETask(
    terms=("u", "u**3"),
    coefficients=(1.5, -0.8),
    weights=(1.0,),
    amplitude=1.6,
    level=3,
    noise_seed=7,
)
TASK = Task(id="0", seed=0, spec=SPEC)
FINALISE = "<update_scientific_context><preferred_equation>{}</preferred_equation></update_scientific_context>"


def _started(**parameters) -> PDEDiscovery:
    env = PDEDiscovery(**{"grid_points": 65, "time_levels": 401, **parameters})
    env.reset(options={"task": TASK})
    return env


def _say(env: PDEDiscovery, inner: str):
    return env.step(f"I think. <answer>{inner}</answer>")


def _sample(env: PDEDiscovery, *points: tuple[float, float]):
    inner = "".join(f'<point x="{x}" t="{t}"/>' for x, t in points)
    return _say(env, f"<sample_pde_data>{inner}</sample_pde_data>")


def _score(env: PDEDiscovery, equations: str, more: str = ""):
    inner = f"{more}<candidate_equations>{equations}</candidate_equations>"
    return _say(env, f"<run_sparse_regression>{inner}</run_sparse_regression>")


def _finish(env: PDEDiscovery, equation: str):
    return _say(env, FINALISE.format(equation))


def test_sampling_fitting_and_finalising_the_truth_is_worth_one():
    env = _started()
    words, reward, terminated, truncated, _ = _sample(env, (0.5, 0.0), (0.3, 0.05))
    assert (reward, terminated, truncated) == (0, False, False)
    assert "Step 2 of 6. Points left: 4. Stored datasets: D1." in words
    assert len(re.findall(r"x=0\.\d+ t=0\.\d+ u=\d\.\d{4} y=-?\d\.\d{4}", words)) == 2
    words = _score(env, "1.5*u - 0.8*u**3; u")[0]
    assert "Best: f(u) = 1.5" in words
    assert "Condition number" in words
    words, reward, terminated, truncated, _ = _finish(env, "1.5*u-0.8*u**3")
    assert (reward, terminated, truncated) == (1, True, False)
    assert env.success
    assert env.status is EpisodeStatus.COMPLETED
    assert "You finalised f(u) = 1.5*u - 0.8*u**3; its largest error" in words
    assert "right" not in words


@pytest.mark.parametrize(
    ("equation", "loss"), [("-1*u", 3.3 / 2.3), ("1.5*u - 0.8*u**3", 0), ("1*u - 0.8*u**3", 0.5 / 2.3)]
)
def test_the_reward_is_one_over_one_plus_the_loss(equation, loss):
    env = _started()
    _sample(env, (0.5, 0.05))
    _score(env, equation)
    assert _finish(env, equation)[1] == pytest.approx(1 / (1 + loss))


def test_a_term_too_many_costs_one_more():
    env = _started(max_terms=3)
    _sample(env, (0.5, 0.05))
    _score(env, "1.5*u - 0.8*u**3 + 0.23*u**2")
    assert _finish(env, "1.5*u - 0.8*u**3 + 0.23*u**2")[1] == pytest.approx(1 / (1 + 0.1 + 1))
    assert not env.success


def test_feedback_tells_whether_the_terms_are_right_only_where_that_is_asked_for():
    for equation, verdict in (("1*u - 1*u**3", "are right"), ("-1*u", "are not right")):
        env = _started(reveal_truth=True)
        _sample(env, (0.5, 0.05))
        _score(env, equation)
        assert verdict in _finish(env, equation)[0]


def test_values_are_listed_at_once_or_only_by_a_regression():
    env = _started(show_samples=False)
    words = _sample(env, (0.5, 0.05))[0]
    assert "x from 0.500 to 0.500" in words
    assert "u=" not in words
    assert re.search(r"u=\d\.\d{4} y=-?\d\.\d{4} predicted=", _score(env, "-1*u")[0])


def test_wrong_values_cost_a_step_and_the_task_goes_on():
    env = _started(max_turns=15)
    wrong = [
        lambda: _score(env, "-1*u"),
        lambda: _finish(env, "-1*u"),
        lambda: _sample(env),
        lambda: _sample(env, (0.0, 0.5)),
        lambda: _sample(env, (0.5, 1.5)),
        lambda: _sample(env, *[(0.5, 0.1)] * 7),
        lambda: _say(env, '<sample_pde_data><point x="nan" t="0"/></sample_pde_data>'),
    ]
    for i, act in enumerate(wrong):
        words, reward, terminated, truncated, _ = act()
        assert "Error: " in words
        assert f"Step {i + 2} of 15" in words
        assert (reward, terminated, truncated) == (0, False, False)
    _sample(env, (0.5, 0.05))
    assert "Error: There is no dataset" in _score(env, "-1*u", "<dataset_id>D9</dataset_id>")[0]
    assert "Error: candidate_equations" in _score(env, "c1*u")[0]
    assert "Error: candidate_equations: at most 2" in _score(env, "u + u**2 + u**3")[0]
    _score(env, "-1*u")
    assert "Error: preferred_equation must be" in _finish(env, "-2*u")[0]
    words, reward, terminated, truncated, _ = _say(env, "<summarize_pack_evidence/>")
    assert "Error" not in words
    words, reward, terminated, truncated, _ = _say(env, "<summarize_pack_evidence/>")
    assert (reward, terminated, truncated) == (0, False, True)
    assert "No equation was finalised within 15 steps" in words
    assert env.status is EpisodeStatus.TRUNCATED


@pytest.mark.parametrize(
    "action",
    ["", "u", "<answer><eval/></answer>", "<answer><sample_pde_data></answer>", "<answer/>", "<answer>1</answer>" * 2],
)
def test_text_that_cannot_be_read_ends_the_task(action):
    env = _started()
    words, reward, terminated, truncated, _ = env.step(action)
    assert (reward, terminated, truncated) == (0, True, False)
    assert env.status is EpisodeStatus.MALFORMED
    assert "could not be read" in words


def test_finalising_needs_a_sample_and_a_regression_in_this_very_task():
    env = _started()
    _sample(env, (0.5, 0.05))
    _score(env, "-1*u")
    _finish(env, "-1*u")
    env.reset(options={"task": TASK})
    assert "Error: Finalising needs" in _finish(env, "-1*u")[0]
    _score(env, "-1*u")
    assert "Error: Finalising needs" in _finish(env, "-1*u")[0]


def test_samples_and_hypotheses_stay_for_the_pack_or_go_with_the_task():
    for memory in (True, False):
        env = _started(world_memory=memory)
        _sample(env, (0.5, 0.05), (0.4, 0.1))
        _score(env, "-1*u")
        _finish(env, "-1*u")
        words, _ = env.reset(options={"task": TASK})
        assert ("From earlier tasks: 2 points" in words) == memory
        assert ("Stored datasets: D1" in words) == memory
        shown = "<summarize_pack_evidence><reveal_equations>true</reveal_equations></summarize_pack_evidence>"
        assert ("f(u) = -1*u" in _say(env, shown)[0]) == memory
        assert "f(u) = -1*u" not in _say(env, "<summarize_pack_evidence/>")[0]


def test_another_hidden_equation_empties_the_memory_and_another_state_does_not():
    env = _started()
    _sample(env, (0.5, 0.05))
    same = Task(id="1", seed=1, spec=_with(0.5))
    assert "From earlier tasks: 1 points" in env.reset(options={"task": same})[0]
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    assert "From earlier tasks" not in env.reset(options={"task": pack.tasks[0]})[0]


def _with(amplitude: float) -> PDETask:
    fields = {name: getattr(SPEC, name) for name in PDETask.__slots__}
    return PDETask(**{**fields, "amplitude": amplitude})


def test_noise_is_a_function_of_the_task_and_of_the_number_of_the_sample():
    first, second = _started(), _started()
    assert _sample(first, (0.5, 0.05), (0.5, 0.05)) == _sample(second, (0.5, 0.05), (0.5, 0.05))
    one, two = first._desk.merged
    assert one != two
    first.reset(options={"task": TASK})
    _sample(first, (0.5, 0.05))
    assert first._desk.merged[2] not in (one, two), "an earlier attempt's samples count"
    assert abs(one.u - two.u) < 0.02


def test_a_snapshot_gathers_for_itself():
    env = _started()
    _sample(env, (0.5, 0.05))
    other = copy.deepcopy(env)
    _sample(other, (0.5, 0.05))
    assert (len(env._desk.merged), len(other._desk.merged)) == (1, 2)


# ---------------------------------------------------------------------- packs


@pytest.mark.parametrize("protocol", ["natural", "compact"])
def test_a_pack_shares_its_equation_and_begins_like_the_shorter_pack(protocol):
    env = PDEDiscovery(protocol=protocol)
    for index in range(10):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8)
        assert len({task.spec.equation for task in pack.tasks}) == 1
        assert env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4).tasks == pack.tasks[:4]
        for start in (0, 4):
            assert {task.spec.level for task in pack.tasks[start : start + 4]} == {1, 2, 3, 4}


def test_the_benchmark_takes_its_templates_in_turn():
    env = PDEDiscovery(family="physical_full_eval_4000", max_terms=3)
    for index in (0, 13, 24, 26):
        spec = env.sample_pack(split=Split.TEST, index=index, num_tasks=1).tasks[0].spec
        template = FAMILIES["physical_full_eval_4000"][index % 25]
        assert {(t, 1 if c > 0 else -1) for t, c in spec.equation} == set(template)


# ---------------------------------------------------------------------- the small instance


def test_the_small_instance_is_a_probe_and_an_answer():
    env = PDEDiscovery(protocol="compact", max_turns=2, point_budget=4, grid_points=65, time_levels=401)
    task = Task(id="0", seed=0, spec=_listed(("u", "u**3"), (1.5, -0.8)))
    assert env.reset(options={"task": task})[0] == "amp=3"
    assert env.rules == "pde"
    words, reward, terminated, truncated, _ = env.step("<answer>x=.2,t=.04/u</answer>")
    assert words == "u-u2:no u-u3:ok"
    assert (reward, terminated, truncated) == (0, False, False)
    words, reward, terminated, truncated, _ = env.step("<answer>f=u-u3</answer>")
    assert words == "done u-u2:no u-u3:ok"
    assert 0.9 < reward <= 1
    assert env.success


def test_in_the_small_instance_an_answer_needs_a_probe_and_a_second_probe_needs_points():
    env = PDEDiscovery(protocol="compact", max_turns=4, point_budget=4, grid_points=65, time_levels=401)
    env.reset(options={"task": Task(id="0", seed=0, spec=_listed(("u",), (-1.0,)))})
    assert env.step("<answer>f=-u</answer>")[0] == "sample-first"
    assert env.step("<answer>x=.2,t=0/-</answer>")[0] == "-u:ok -u3:no"
    assert env.step("<answer>x=.2,t=0/t</answer>")[0] == "no-points"
    assert env.step("<answer>x=.2,t=0/t</answer>")[1:4] == (0, False, True)


def test_probes_and_equations_of_the_small_instance_are_of_the_training_family():
    assert set(CANDIDATES.values()) <= set(FAMILIES["physical_full_train"])
    assert [word for words in DICTIONARIES.values() for word in words] == list(CANDIDATES)
    assert len(PROBES) == 12


def _listed(terms: tuple[str, ...], coefficients: tuple[float, ...]) -> PDETask:
    fields = {name: getattr(SPEC, name) for name in PDETask.__slots__}
    return PDETask(**{**fields, "terms": terms, "coefficients": coefficients})
