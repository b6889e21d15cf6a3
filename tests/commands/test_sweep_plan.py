"""From axes to jobs: what is planned, where it goes, and what is refused before anything runs."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import yaml

from cod_lightning import extras
from cod_lightning.cli import main
from cod_lightning.commands.sweep import plan
from cod_lightning.commands.sweep_job import launch
from cod_lightning.errors import ConfigError
from cod_lightning.reports.sweeps.record import write_record

pytestmark = pytest.mark.slow
AXES = ("credit=EpisodeCredit,TaskCredit", "seed_everything=1,2", "sampled_token_budget=5000")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return plan("smoke", AXES, tmp_path_factory.mktemp("sweep"))


def test_every_combination_is_a_job(jobs):
    assert [job.record.seed for job in jobs] == [1, 2, 1, 2]
    assert [job.record.label for job in jobs[:2]] == [
        "smoke credit=EpisodeCredit seed=1",
        "smoke credit=EpisodeCredit seed=2",
    ]


def test_a_job_has_every_key_of_its_own_in_its_config_and_its_folder_says_what_it_is(jobs):
    fit = jobs[0].config
    assert (fit["seed_everything"], fit["torch_threads"], fit["sampled_token_budget"]) == (1, 1, 5000)
    assert fit["model"]["credit"]["class_path"].endswith("EpisodeCredit")
    assert jobs[2].config["model"]["credit"]["class_path"].endswith("TaskCredit")
    assert Path(jobs[0].folder).name.startswith("smoke,credit=EpisodeCredit,seed=1-")


def test_a_job_is_found_again_by_its_config_whatever_else_is_swept(jobs):
    root = jobs[0].folder.parent
    for job in jobs:
        write_record(job.folder, job.record)
    more = plan("smoke", ("credit=TaskCredit,TrajectoryCredit", "method=rec", "seed_everything=2", AXES[2]), root)
    known = {job.folder for job in jobs}
    assert [job.folder in known for job in more] == [True, False], "task, trajectory"
    assert more[0].folder == jobs[3].folder


@pytest.mark.parametrize(
    "spellings",
    [
        (
            "data.env.max_turns=3 data.suites=in_domain model.lr=1e-3",
            "data.env.init_args.max_turns=3 data.suites=[in_domain] model.lr=0.001",
            "env.max_turns=3 data.suites=in_domain model.lr=0.001",
        ),
        ("env=frozen_lake_3x3", "data.env=frozen_lake_3x3"),
        (
            "env=cod_lightning.envs.doors.Doors env.protocol=compact data.env.num_doors=3",
            "data.env.init_args.num_doors=3 env.protocol=compact env=cod_lightning.envs.doors.Doors",
        ),
    ],
)  # fmt: skip
def test_equal_jobs_have_equal_hashes_however_they_are_typed(spellings, tmp_path, capsys):
    line = ["sweep", "--config", "smoke", "--out", str(tmp_path), "--print_jobs"]
    found = []
    for spelling in spellings:
        assert main([*line, *spelling.split()]) == 0
        found.append({row.rpartition("-")[2] for row in capsys.readouterr().out.splitlines() if " -> " in row})
    assert all(hashes == found[0] for hashes in found)


def test_axes_of_the_file_stand_below_those_that_are_typed(tmp_path):
    typed = plan("examples/studies/levers.yaml", ("credit=TaskCredit", "method=grpo,loop"), tmp_path)
    assert len(typed) == 2 * 5, "the file's five seeds, two methods, the typed credit alone"
    assert all("credit=TaskCredit" in job.record.overrides for job in typed)
    assert {job.config["model"]["baseline"]["class_path"].rpartition(".")[2] for job in typed} == {
        "GroupMean",
        "LeaveOneOut",
    }
    assert all(job.config["trainer"]["max_epochs"] == -1 for job in typed)


def test_an_axis_may_hold_names_of_what_ships_and_class_paths(tmp_path):
    jobs = plan("smoke", ("loss=GSPO,cod_lightning.objective.losses.GRPO",), tmp_path)
    assert [job.record.overrides for job in jobs] == [("loss=GSPO",), ("loss=cod_lightning.objective.losses.GRPO",)]
    assert [job.config["model"]["loss"]["class_path"].rpartition(".")[2] for job in jobs] == ["GSPO", "GRPO"]


def test_print_jobs_says_how_far_each_is_and_writes_nothing(tmp_path, capsys):
    line = ["sweep", "--config", "smoke", "--out", str(tmp_path / "out"), "--print_jobs", "warm_start=null"]
    assert main([*line, "credit=EpisodeCredit,TaskCredit"]) == 0
    assert "2 jobs, 0 finished" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    (job, _) = plan("smoke", ("warm_start=null", "credit=EpisodeCredit,TaskCredit"), tmp_path / "out")
    write_record(job.folder, replace(job.record, finished=True))
    assert main([*line, "credit=EpisodeCredit,TaskCredit"]) == 0
    printed = capsys.readouterr().out
    assert "2 jobs, 1 finished" in printed
    assert printed.startswith("finished  smoke")


def test_a_job_s_config_is_one_that_fit_takes(tmp_path, jobs):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(jobs[0].config, sort_keys=False))
    with pytest.raises(SystemExit) as ended:
        main(["fit", "--config", str(path), "--print_config"])
    assert not ended.value.code
    assert "hydra" not in jobs[0].config


@pytest.mark.parametrize(
    ("launcher", "keys", "said"),
    [
        ("slurm", [], r"--launcher is slurm; expected one that Hydra can start.*submitit_slurm"),
        (
            "joblib",
            ["hydra.launcher.partition=gpu"],
            r"--launcher is joblib hydra\.launcher\.partition=gpu; .*partition",
        ),
    ],
)
def test_a_launcher_that_hydra_cannot_start_is_a_mistake_in_one_line(launcher, keys, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        launch([tmp_path], tmp_path, launcher, keys)


@pytest.mark.parametrize("launcher", ["joblib", "submitit_slurm"])
def test_a_launcher_whose_package_is_missing_names_it(launcher, monkeypatch, tmp_path):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(extras, "version", missing)
    package = f"hydra-{launcher.partition('_')[0]}-launcher"
    with pytest.raises(ConfigError, match=rf"--launcher is {launcher}; .*pip install '{package}>=1\.2'"):
        launch([tmp_path], tmp_path, launcher, [])


def test_a_sweep_that_is_interrupted_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cod_lightning.commands.sweep.launch", interrupted)
    assert main(["sweep", "--config", "smoke", "credit=EpisodeCredit", "--out", str(tmp_path / "sweep")]) == 130
    assert "Stopped by SIGINT. To go on: the same command again." in capsys.readouterr().err
