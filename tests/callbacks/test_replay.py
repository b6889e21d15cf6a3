"""The callbacks around a real training: what is written down gives the same advantages, and a test ends in a table."""

import io
import json
from pathlib import Path

import lightning as L
import pytest
from lightning.pytorch.loggers import CSVLogger
from rich.console import Console

from cod_lightning.callbacks import Evaluation, Progress, Throughput, Transcripts, WeightSync
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.suite import Suite
from cod_lightning.evaluation.table import print_table
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.transcript import read
from tests.credit_tables import advantage, credit_table
from tests.small_fit import Updates, quiet_trainer, small_data, small_policy

Run = tuple[Path, GRPOModule, list[Batch], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, batches, file = tmp_path_factory.mktemp("run"), Updates(), io.StringIO()
    L.seed_everything(1, verbose=False)
    module, progress = GRPOModule(small_policy(), lr=1e-3), Progress()
    progress.console = Console(file=file, width=100)
    suite = Suite(name="heldout", num_packs=5, pack_size=3, warm_start_temperatures=(0.0, 1.0))
    data = small_data(pack_size=3, group_size=3, val_packs=4, suites=[suite])
    own = (WeightSync(), progress, Transcripts(train_per_rollout=4), Throughput(), Evaluation(), batches)
    logger = CSVLogger(str(folder), name="", version="")
    trainer = quiet_trainer(folder, *own, logger=logger, log_every_n_steps=1, enable_progress_bar=True)
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    data.test_weights = ("warm_start",)
    trainer.test(module, data, verbose=False)
    return folder, module, batches.batches, file.getvalue()


def test_a_transcript_is_replayed_into_the_same_advantages(run: Run) -> None:
    folder, module, batches, _ = run
    groups = read(folder / "lifecycles" / "train.jsonl")
    rollouts = [groups[:4], groups[4:]]
    assert len(groups) == 8
    assert len(batches) == 4
    for rollout, batch in zip(rollouts, batches[::2], strict=True):
        replayed = module.credited(credit_table(rollout))
        stamped = [advantage(replayed, batch, row) for row in range(len(batch))]
        assert batch.advantages.tolist() == stamped
        assert any(stamped)


def test_two_passes_of_test_end_in_one_file_and_one_table(run: Run) -> None:
    record = json.loads((run[0] / "evaluation.json").read_text())["suites"]["heldout"]
    assert set(record["controls"]) == {"blanked_context", "warm_start_t0.0", "warm_start", "warm_start_blanked"}
    console = Console(file=io.StringIO(), width=80)
    print_table(read_results(run[0] / "evaluation.json"), console)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "trained T=1" in text
    assert "warm start T=0" in text
    assert "No difference" in text


def test_the_log_of_a_real_run_has_a_line_for_each_part(run: Run) -> None:
    lines = run[3].splitlines()
    assert [line.split("  ")[2].split(":")[0] for line in lines] == [
        "validation", "train", "test_heldout_trained", "test_heldout_blanked_context", "test_heldout_warm_start_t0.0",
        "test_heldout_warm_start", "test_heldout_warm_start_blanked",
    ]  # fmt: skip
