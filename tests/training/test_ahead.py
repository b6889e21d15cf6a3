"""Rollouts that are played while training goes on: by which weights, what of them is kept, and how they end."""

import asyncio
import math
import signal
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import lightning as L
import pytest
import torch

from cod_lightning.callbacks.throughput import Throughput
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.datamodules.checks import check_staleness
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.errors import ConfigError, EngineRefused, Stopped, TooManyFailures
from cod_lightning.methods.attempts import Anchored
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.mismatch import TokenTruncate
from cod_lightning.rollout import transcript
from cod_lightning.rollout.runner import RolloutObserver, RolloutRunner
from cod_lightning.training.ahead import GroupKey
from cod_lightning.training.packs import PackChoice, Uniform
from cod_lightning.training.rollouts import TrainingRollouts
from tests.cases import each
from tests.small_fit import quiet_trainer, small_data, small_policy
from tests.stubs import Following, WordWorld

UPDATES = 2
TIMING = ("time/", "throughput/")


class Recorder(L.Callback, RolloutObserver):
    """What every update had, and what was played, seen from the main thread."""

    def __init__(self):
        self.versions, self.values, self.played, self.waited_s = [], [], [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.versions.append(batch.policy_version.unique().tolist())
        self.waited_s.append(float(trainer.callback_metrics.get("time/wait_s", math.nan)))
        self.values.append({k: float(v) for k, v in trainer.callback_metrics.items() if not k.startswith(TIMING)})

    def rollout_played(self, label, groups):
        assert threading.current_thread() is threading.main_thread()
        versions = {turn.policy_version for g in groups for life in g.lifecycles for turn in life.episodes[0].turns}
        self.played.append((label, self.trainer.global_step, sorted(versions)))


class Slow(TransformersEngine):
    """Takes its time now and then."""

    async def generate(self, request):
        if "/train/" in request.dialogue and request.dialogue.endswith("#0.0"):
            time.sleep(0.01)
        return await super().generate(request)


class Waits(L.Callback):
    """So does training."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        time.sleep(0.05)


def made(staleness=1, engine=None, world=None, **of_data):
    sizes = {"group_size": 2, "packs_per_rollout": 2, "seed": 3, "max_staleness": staleness}
    return small_data(engine, world or WordWorld(max_turns=2), **sizes | of_data)


def fit(tmp_path, data, *, more=(), limits=None, **module):
    L.seed_everything(3, verbose=False)
    grpo, recorder = GRPOModule(small_policy(), **({"lr": 1e-2} | module)), Recorder()
    data.runner.follow(recorder)
    trainer = quiet_trainer(
        tmp_path, *more, Throughput(), WeightSync(), recorder, **({"max_epochs": 2} | (limits or {}))
    )
    recorder.trainer = trainer
    trainer.fit(grpo, data)
    return grpo, recorder


def ahead_threads():
    return [thread for thread in threading.enumerate() if thread.name == "rollout ahead"]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("usual"), made())


def test_a_rollout_is_of_the_weights_of_one_sync_before_and_reported_when_training_on_it_begins(usual):
    _, recorder = usual
    assert recorder.versions == [[1]] * 2 * UPDATES + [[2]] * UPDATES + [[3]] * UPDATES
    assert [values["train/staleness"] for values in recorder.values] == [0] * UPDATES + [1] * 3 * UPDATES
    assert [values["train/staleness_mean"] for values in recorder.values] == [0] * UPDATES + [1] * 3 * UPDATES
    assert "train/mismatch_kl" not in recorder.values[-1]
    assert recorder.values[0]["train/staleness_kl"] < 1e-9 < recorder.values[UPDATES]["train/staleness_kl"]
    assert recorder.played == [
        ("train", 0, [1]),
        ("train", 2, [1]),
        ("validation", 4, [3]),
        ("train", 4, [2]),
        ("train", 6, [3]),
        ("validation", 8, [5]),
    ]


@pytest.mark.parametrize("bound", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_rollouts_further_ahead_are_older_by_as_much_and_the_first_ones_all_by_the_first_weights(tmp_path, bound):
    data = made(bound, source=Noting())
    _, recorder = fit(tmp_path, data, limits={"max_epochs": 3})
    lags = [min(number, bound) for number in range(6) for _ in range(UPDATES)]
    assert [values["train/staleness"] for values in recorder.values] == lags
    assert recorder.versions == [[1 + update // UPDATES - lag] for update, lag in enumerate(lags)]
    assert [step for label, step, _ in recorder.played if label == "train"] == [UPDATES * number for number in range(6)]
    calls = data.packs.source.calls
    assert [first for name, first in calls if name == "next"] == list(range(0, 12, 2))
    assert [choices for name, choices in calls if name == "observe"] == [[n, n + 1] for n in range(0, 12, 2)]
    before = [[name for name, _ in calls[: calls.index(("observe", [n, n + 1]))]] for n in range(0, 12, 2)]
    assert [names.count("next") for names in before] == [1, *(min(6, n + bound) for n in range(1, 6))]
    assert not ahead_threads()


def test_a_validation_within_a_rollout_waits_for_the_one_under_way_and_plays_the_newest_weights(tmp_path):
    _, recorder = fit(tmp_path, made(engine=Slow()), limits={"max_epochs": 1, "val_check_interval": 1})
    validations = [versions for label, _, versions in recorder.played if label == "validation"]
    assert validations == [[2], [3], [4], [5]]
    assert recorder.versions == [[1]] * 2 * UPDATES


@pytest.mark.parametrize(
    ("engine", "more"), [(Slow, ()), pytest.param(TransformersEngine, (Waits(),), marks=pytest.mark.slow)]
)
def test_figures_and_weights_do_not_depend_on_who_is_faster(usual, tmp_path, engine, more):
    module, recorder = fit(tmp_path, made(engine=engine()), more=more)
    assert recorder.values == usual[1].values
    assert recorder.played == usual[1].played
    assert all(waited >= 0 for waited in recorder.waited_s)
    for one, other in zip(module.model.parameters(), usual[0].model.parameters(), strict=True):
        assert torch.equal(one, other)


class Noting(Uniform):
    """What a source is asked and shown, in order."""

    def __init__(self):
        self.calls = []

    def next(self, first, count):
        self.calls.append(("next", first))
        return super().next(first, count)

    def observe(self, outcomes):
        assert outcomes.credit.values.shape == (2 * 2 * 3,)
        self.calls.append(("observe", [choice.index for choice in outcomes.choices]))


class Wrong(Uniform):
    """Names no pack from the second rollout on."""

    def next(self, first, count):
        return super().next(first, count if first == 0 else 0)


def test_bound_0_begins_no_thread(tmp_path, monkeypatch):
    data = made(0)
    monkeypatch.setattr(data.runner.ahead, "play", lambda *_, **__: pytest.fail("a rollout was begun"))
    _, recorder = fit(tmp_path, data, limits={"max_epochs": 1})
    assert recorder.versions == [[n] for n in (1, 2) for _ in range(UPDATES)]
    assert all(math.isnan(waited) for waited in recorder.waited_s)


@pytest.mark.slow
def test_attempts_and_a_correction_go_together_with_it(tmp_path):
    data = made(program=Anchored(attempts=2, fraction=1.0), passes_per_rollout=2)
    _, recorder = fit(tmp_path, data, mismatch=TokenTruncate())
    assert all(values["rollout/num_attempts"] for values in recorder.values)
    assert all("train/mismatch_corrected" in values for values in recorder.values)


class Refuses(TransformersEngine):
    """No more turns after so many of training."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns

    async def generate(self, request):
        self.turns -= "/train/" in request.dialogue
        if self.turns < 0:
            raise EngineRefused("no such model")
        return await super().generate(request)


TURNS = 2 * 2 * (2 * 2 + 1)
"""Of a rollout: packs, siblings, two solve episodes of two turns and one update."""


@each(
    ("more", "error", "said"),
    [
        (lambda: {"engine": Refuses(TURNS + 10)}, EngineRefused, "no such model"),
        (lambda: {"source": Wrong()}, ConfigError, r"data\.source is Wrong"),
    ],
)
def test_what_ends_a_rollout_ahead_ends_the_run_where_it_would_be_taken(tmp_path, more, error, said):
    data = made(**more())
    with pytest.raises(error, match=said):
        fit(tmp_path, data)
    assert data.trainer.global_step == UPDATES
    assert data.state_dict()["rollouts"]["ahead"] == []
    assert not ahead_threads()


class Breaks(WordWorld):
    """From the second rollout on."""

    def reset(self, *, seed=None, options=None):
        if 2 <= int(options["task"].id.partition(".")[0]) < 4:
            raise RuntimeError("broken")
        return super().reset(seed=seed, options=options)


@pytest.mark.slow
def test_a_rollout_that_lost_too_many_lifecycles_ends_the_run_and_a_checkpoint_has_it_played_again(tmp_path):
    data, kept = made(world=Breaks(max_turns=2)), []
    data.runner.follow(Following(update_begins=lambda **_: kept.append(data.state_dict()["rollouts"]["ahead"])))
    with pytest.raises(TooManyFailures, match="4 of 4 lifecycles"):
        fit(tmp_path, data)
    assert [[(one["choice"]["index"], one["lines"]) for one in ahead] for ahead in kept] == [
        [],
        *[[(2, None), (3, None)]] * UPDATES,
    ]
    again = made()
    again.load_state_dict({**data.state_dict(), "rollouts": data.rollouts.state_dict() | {"ahead": kept[-1]}})
    _, recorder = fit(tmp_path, again)
    assert recorder.played[0] == ("train", 0, [1])


class Stops(L.Callback):
    """Ends the run in its first update, one way or the other, while a rollout is under way."""

    def __init__(self, error):
        self.error = error

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert ahead_threads()
        if self.error:
            raise self.error
        trainer.should_stop = True


class Long(Slow):
    """Would go on for seconds."""

    async def generate(self, request):
        if "/train/" in request.dialogue and int(request.dialogue.rpartition("/")[2].partition("#")[0]) >= 2:
            time.sleep(0.2)
        return await super().generate(request)


@pytest.mark.slow
def test_a_run_that_fails_does_not_wait_for_the_rest_of_a_rollout(tmp_path):
    data, begun = made(engine=Long()), time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, data, more=[Stops(ZeroDivisionError())])
    assert time.monotonic() - begun < 0.2 * TURNS / 2
    assert not ahead_threads()
    data.runner.liveness.at("another rollout", "engine")


def test_a_run_that_ends_early_leaves_the_engine_to_whoever_comes_next(tmp_path):
    data = made(engine=Slow())
    fit(tmp_path, data, more=[Stops(None)])
    assert not ahead_threads()
    assert not data.engine.decoder.dialogues
    assert data.runner.ahead.begun == []


def test_a_rollout_that_waits_is_kept_exactly(tmp_path):
    data, states = made(program=Anchored(attempts=2, fraction=1.0)), []
    data.runner.follow(Following(update_begins=lambda **_: states.append(data.state_dict())))
    fit(tmp_path, data)
    own, other = made(), made()
    own.load_state_dict(states[1])
    other.load_state_dict(own.state_dict())
    kept, again = (one.rollouts.ahead.take(1, 2).rollout for one in (own, other))
    assert kept.num_packs == 2
    assert [one.pack.id for one in kept.packs] == [f"words/train/3/{i}" for i in range(2, 4)]
    assert any(life.attempts for part in kept.parts for group in part.groups for life in group.lifecycles)
    assert again == kept
    lines = [transcript.dump(group) for group in kept.parts[0].groups]
    assert lines == [one["lines"] for one in states[1]["rollouts"]["ahead"]]


def test_what_cannot_be_together_with_it_is_refused():
    with pytest.raises(ConfigError, match=r"0 with data\.engine\.sleep"):
        check_staleness(made(engine=VLLMServerEngine(sleep=True)))
    with pytest.raises(ConfigError, match=r"data\.max_staleness is 1; expected 0 with data\.resample_packs=3"):
        check_staleness(made(resample_packs=3))


def test_a_signal_ends_the_wait_for_a_rollout_with_weights_in_flight_which_is_not_lost():
    runner, over = RolloutRunner(SimpleNamespace(in_flight=True)), threading.Event()  # pyright: ignore

    @contextmanager
    def interruptible():
        def stop(number, frame):
            raise Stopped(number)

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            yield
        finally:
            signal.signal(signal.SIGALRM, before)

    observer = RolloutObserver()
    observer.interruptible = interruptible
    runner.follow(observer)
    unused = dict.fromkeys(("packs", "setting"))
    rollouts = TrainingRollouts(**unused, runner=runner, group_size=1, packs_per_rollout=1, updates_per_rollout=1)  # pyright: ignore

    async def waits():
        while not over.is_set():
            await asyncio.sleep(0.01)

    runner.ahead.play([(runner.ahead.add(GroupKey(PackChoice(0), rollout=0)), waits)])
    with pytest.raises(Stopped):
        rollouts.next(0, 0, None, None)  # pyright: ignore
    assert len(runner.ahead.begun) == 1
    over.set()
    runner.ahead.drop()
