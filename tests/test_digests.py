"""Short trainings leave every bit as it was."""

import json

import pytest

from examples.studies import digests


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", digests.CONFIGS)
def test_a_training_computes_the_bits_that_are_kept_of_it(name):
    kept = json.loads(digests.KEPT.read_text())
    if kept["machine"] != digests.machine():
        pytest.skip(f"digests are of {kept['machine']}")
    assert digests.run(name) == kept["runs"][name], (
        "if it is meant to: examples/studies/digests.py --out docs/results/digests.json"
    )


def test_digests_of_metrics_see_a_digit_but_no_second_and_no_order_of_columns(tmp_path):
    def digest(text):
        (tmp_path / "metrics.csv").write_text(text)
        return digests.of_metrics(tmp_path / "metrics.csv")

    first = digest("step,time/train_s,a\n0,1.5,0.25\n1,,\n")
    assert first == digest("a,step,time/train_s\n0.25,0,7\n,1,\n")
    assert first != digest("step,time/train_s,a\n0,1.5,0.26\n1,,\n")
