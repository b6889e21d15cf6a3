"""`make gpu` at small sizes on the CPU: every part runs or says why it cannot, and the page has all of them."""

import json
from dataclasses import replace

import pytest

from examples.studies.gpu import measure, sizes, wheels
from tests.random_checkpoint import saved_checkpoint

pytestmark = pytest.mark.slow
ON_CPU = {  # lines that have to run without a GPU and without vLLM
    "gap": ["transformers"],
    "speed": ["trained, all weights"],
    "gradients": ["LoRAPolicy", "QLoRAPolicy"],
    "stochastic": ["chances on this device and on the CPU", "share of updates that arrives, adamw_stochastic"],
    "paged": ["adamw", "adamw_8bit", "paged_adamw_8bit"],
    "cod": ["trained", "blanked_context", "warm_start_t0.0"],
}
IN_PROCESSES = {"fsdp2": ["one process", "fsdp2, 1 processes", "fsdp2, 2 processes"], "resume": ["none"]}
"""Parts that start the command line seven times; test_ranks.py and test_resume.py compare the same."""
ON_GPU = {"graphs": "needs a CUDA device", "plan": "torch counts memory on CUDA only", "sleep": "needs a CUDA device"}


def measured(folder, monkeypatch, expected):
    """Rows of the parts, measured in this process, in which every expected line is there and ran."""
    monkeypatch.setattr(sizes, "SMALL", replace(sizes.SMALL, checkpoint=str(saved_checkpoint(folder / "checkpoint"))))
    monkeypatch.setattr(measure, "run", lambda name, small: list(measure.rows_of(name, small=small)))
    assert measure.main(["--small", "--out", str(folder / "gpu"), "--parts", ",".join(expected)]) == 0
    parts = json.loads((folder / "gpu.json").read_text())["parts"]
    for name, lines in expected.items():
        for line in lines:
            rows = [row for row in parts[name]["rows"] if line in row.values()]
            assert rows, (name, line)
            assert not [row["not run"] for row in rows if "not run" in row]
    return parts


@pytest.mark.filterwarnings("default")
def test_every_part_runs_or_says_why_it_cannot(tmp_path, monkeypatch):
    assert set(measure.PARTS) == {*ON_CPU, *IN_PROCESSES, *ON_GPU}
    parts = measured(tmp_path, monkeypatch, ON_CPU | dict.fromkeys(ON_GPU, ()))
    for name, reason in ON_GPU.items():
        assert all(reason in row.get("not run", "") for row in parts[name]["rows"])
    rows = {row["what"]: row["result"] for row in parts["stochastic"]["rows"]}
    assert rows["chances on this device and on the CPU"] == "equal"
    assert rows["share of updates that arrives, adamw_stochastic"] == pytest.approx(1, abs=0.03)
    assert rows["share of updates that arrives, adamw"] < 0.1
    assert min(row["cosine"] for row in parts["gradients"]["rows"]) > 0.98
    page = (tmp_path / "gpu.md").read_text()
    assert all(f"## {name}\n" in page for name in (*ON_CPU, *ON_GPU))
    assert "Not measured: resume, fsdp2." in page
    assert "no figure here says anything about a GPU" in page
    assert "torch 2." in page
    assert "python examples/studies/gpu/measure.py --parts gap" in page


@pytest.mark.soak
@pytest.mark.filterwarnings("default")
def test_the_parts_that_train_in_processes_of_their_own_run(tmp_path, monkeypatch):
    parts = measured(tmp_path, monkeypatch, IN_PROCESSES)
    norms = [row["train/gradient_norm"] for row in parts["fsdp2"]["rows"]]
    assert norms == pytest.approx([norms[0]] * 3, rel=0.02)


def test_a_part_that_is_cut_off_keeps_the_rows_that_it_had(monkeypatch, tmp_path):
    module = tmp_path / "slow_part.py"
    module.write_text("import time\nprint('ROW {\"what\": 1}', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(measure, "__file__", str(module))
    monkeypatch.setattr(measure, "PARTS", {"slow": ("parts", 3)})
    assert measure.run("slow", small=True) == [{"what": 1}, {"not run": "not done within 3 s"}]


def test_a_part_that_dies_or_hangs_leaves_a_line(monkeypatch):
    monkeypatch.setattr(measure, "PARTS", measure.PARTS | {"plan": ("parts", 0.1)})
    assert measure.run("plan", small=True) == [{"not run": "not done within 0.1 s"}]
    monkeypatch.setattr(measure, "PARTS", {"nothing": ("parts", 60)})  # unknown to the process that is started
    (row,) = measure.run("nothing", small=True)
    assert row["not run"].startswith("ended with 2: ")


def test_what_a_machine_lacks_is_what_pip_would_add():
    there = wheels.pinned("torch==2.11.0+cu128\nPyYAML==6.0.2\n")
    named = [{"metadata": {"name": n, "version": v}} for n, v in (("torch", "2.11.0"), ("msgspec", "0.20.0"))]
    assert wheels.lacking({"install": named}, there) == ["msgspec==0.20.0"]
