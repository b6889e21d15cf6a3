"""Every answer to a wrong usage is short, names the key, the value and a remedy, and is no traceback."""

import pytest
from lightning.pytorch import Trainer

from cod_lightning.commands import phase, sweep
from tests.cases import each
from tests.command_line import keep_compositions
from tests.wrong_usages import BUILT, QUICK, SIGNALS, findings, lay_out, usages


@pytest.fixture(autouse=True)
def _beside_files_and_without_work(tmp_path, monkeypatch):
    def accepted(*_, **__):
        raise SystemExit(0)

    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Trainer, "_run_stage", accepted)
    monkeypatch.setattr(sweep, "launch", accepted)
    keep_compositions(monkeypatch)


JOBS = "sweep --config smoke"
"""Composed for each job, which takes its time."""


@each(
    ("usage", "names"),
    [one for one in usages(QUICK) if not one[0].startswith(JOBS)],
    slow=[one for one in usages(QUICK) if one[0].startswith(JOBS)],
)
def test_a_wrong_usage_is_answered_with_its_key_its_value_and_a_remedy(usage, names):
    assert findings(usage, names) == []


@pytest.mark.slow
@pytest.mark.parametrize(("usage", "names"), usages(BUILT), ids=str)
def test_a_wrong_usage_of_a_training_is_answered_likewise(usage, names):
    assert findings(usage, names) == []


@pytest.fixture
def _no_warm_start(monkeypatch):
    def begins(*_):
        raise AssertionError("a warm start begins")

    monkeypatch.setattr(phase, "ensure_warm_start", begins)


@pytest.mark.slow
@pytest.mark.usefixtures("_no_warm_start")
@pytest.mark.parametrize(("usage", "names"), usages(SIGNALS), ids=str)
def test_a_wrong_usage_of_a_signal_is_answered_before_a_warm_start_begins(usage, names):
    assert findings(usage, names) == []


@pytest.mark.slow
@pytest.mark.usefixtures("_no_warm_start")
def test_a_right_usage_of_a_signal_begins_a_warm_start():
    assert (
        "a warm start begins"
        in findings("fit --config smoke replay=SignalReplay source=Revisits source.by=failure source.back=near", ())[0]
    )
