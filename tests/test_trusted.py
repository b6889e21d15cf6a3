"""A foreign run's config names classes; only those of this project are imported without `--trust`."""

import sys
from pathlib import Path

import pytest
import yaml

from cod_lightning.cli import main
from tests.checkpoints.test_checkpoint import content, model
from tests.records import group
from tests.reports.made_runs import write_config, write_run

PAYLOAD = "from pathlib import Path\nPath(__file__).with_name('proof').touch()\nclass Thing: pass\n"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A run's folder with a module beside its config, seen from within, where Python finds the module."""
    folder = write_run(tmp_path / "run", [group("a", [[True, False], [False, True]])])
    (folder / "payload.py").write_text(PAYLOAD)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("payload", None)


@pytest.mark.parametrize("named", ["payload.Thing", "payload.sub.Thing", "cod_lightning.cli.sys.modules"])
def test_a_report_imports_no_foreign_module(foreign, capsys, named):
    write_config(foreign, credit=named)
    before = list(sys.path)
    assert main(["report", str(foreign)]) == 0
    assert "payload" not in sys.modules
    assert not (foreign / "proof").exists()
    assert sys.path == before


def test_a_report_about_a_trusted_run_imports_what_it_names(foreign):
    write_config(foreign, credit="payload.Thing")
    assert main(["report", str(foreign), "--trust"]) == 0
    assert (foreign / "proof").exists()


def test_a_report_still_knows_our_own_credit(foreign):
    write_config(foreign)
    assert main(["report", str(foreign)]) == 0
    assert "Advantages are computed again" in (foreign / "report.html").read_text()


@pytest.mark.parametrize("command", ["export", "deploy"])
@pytest.mark.parametrize("shorthand", [True, False], ids=["shorthand", "class_path"])
@pytest.mark.parametrize("key", ["data.env", "model.loss", "trainer.logger", "trainer.callbacks"])
def test_a_policy_of_a_foreign_run_imports_no_foreign_module(foreign, capsys, command, shorthand, key):
    import torch

    (foreign / "checkpoints").mkdir()
    torch.save(content(model()), foreign / "checkpoints" / "last.ckpt")
    named = "payload.Thing" if shorthand else {"class_path": "payload.Thing"}
    section, name = key.split(".")
    (foreign / "config.yaml").write_text(yaml.safe_dump({section: {name: [named] if name == "callbacks" else named}}))
    where = ["--out", "out"] if command == "export" else ["--state", "state"]
    argv = [command, "--ckpt_path", str(foreign / "checkpoints" / "last.ckpt"), *where]
    assert main(argv) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said == (
        "error: class_path is payload.Thing; expected a class of this project, since the run's config.yaml may be anybody's. "
        "Add --trust if you trust the run as you would a program."
    )
    assert not Path("proof").exists()
    with pytest.raises(SystemExit):  # it is no such class; but its module was run to see that
        main([*argv, "--trust"])
    assert Path("proof").exists()
