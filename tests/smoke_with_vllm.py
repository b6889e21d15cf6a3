"""Smoke trainings with vLLM as their engine, through the command line."""

import pytest

from tests.command_line import cod, rows

SHORT = ("--trainer.max_epochs", "1", "--data.suites", "null")


def fit(*arguments, cwd, cache, engine="VLLMEngine"):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VLLM_LOGGING_LEVEL", raising=False)  # an engine within this process has set it
        line = ("fit", "--config", "smoke", f"engine={engine}", *SHORT, *arguments)
        return cod(*line, cwd=cwd, cache=cache, fresh=True, timeout=550)


def values(run, key):
    return [float(row[key]) for row in rows(run) if row.get(key)]


def assert_exact(run):
    assert set(values(run, "rollout/num_failed")) == set(values(run, "rollout/token_drift")) == {0.0}
    for key in ("train/max_logprob_gap", "engine/self_test_gap"):
        assert 0 < max(values(run, key)) <= 1e-4
