"""What a run recorded, in figures."""

from pathlib import Path

from cod_lightning.diagnosis.evidence import Evidence
from cod_lightning.reports.curves import read_metrics


def test_a_training_is_summed_up_by_its_first_update_and_its_last_quarter(tmp_path):
    rows = [f"{n},{0.5 + n / 100},{0.9},{1 - n / 10}" for n in range(8)]
    header = "step,train/pass_at/1,train/pass_at/8,train/entropy"
    (tmp_path / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    said = Evidence(folder=tmp_path, metrics=read_metrics(tmp_path)[0]).in_training()
    assert said == (
        "In training, first update to last quarter: pass@1 0.500 to 0.565, pass@8 0.900 to 0.900, entropy 1.000 to 0.350 "
        "(nats a token)."
    )


def test_what_was_not_logged_is_left_out(tmp_path):
    assert Evidence(folder=tmp_path, metrics=read_metrics(tmp_path)[0]).in_training() == ""
    only = {"train/entropy": {0: 1.0, 1: 0.5}}
    said = Evidence(folder=tmp_path, metrics=only).in_training()
    assert said == "In training, first update to last quarter: entropy 1.000 to 0.500 (nats a token)."


def test_a_training_that_ends_while_success_rises_is_said_to_have_ended_early():
    def said(*ends):
        columns = {f"val/success/position_{k}": {9: 0.1, 19: end - gain, 29: end} for k, (end, gain) in enumerate(ends)}
        return Evidence(folder=Path(), metrics=columns).in_training()

    assert "rose by +0.040 from the last validation but one" in said((0.5, 0.0), (0.7, 0.08))
    assert said((0.5, 0.0), (0.7, 0.02)) == ""
    assert Evidence(folder=Path(), metrics={"val/success/position_0": {9: 0.9}}).in_training() == ""
