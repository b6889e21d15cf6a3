"""Checkpoints, in one file or in shards."""

import contextlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import load, save
from torch.distributed.checkpoint.api import CheckpointException

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import PretrainedPolicy
from tests.cases import each
from tests.checkpoints.made import content, model, sharded


@pytest.mark.filterwarnings("ignore")
@each("kind", ["file", "shards"])
def test_the_weights_of_a_checkpoint_are_those_of_the_model(tmp_path: Path, kind: str) -> None:
    kept, path = model(), tmp_path / "last.ckpt"
    if kind == "file":
        torch.save(content(kept), path)
    else:
        sharded(path, kept)
    checkpoint = read_checkpoint(path)
    assert checkpoint.global_step == 7
    assert checkpoint.versions == {"cod_lightning": "0.1.0", "lightning": "2.6.6"}
    other = model()
    assert checkpoint.load_into(other) is torch.float32
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), other.parameters(), strict=True))


def test_the_precision_is_the_checkpoints(tmp_path: Path) -> None:
    torch.save(content(model().bfloat16()), tmp_path / "half.ckpt")
    assert read_checkpoint(tmp_path / "half.ckpt").load_into(model()) is torch.bfloat16


def test_a_model_of_another_size_is_refused(tmp_path: Path) -> None:
    torch.save(content(model()), tmp_path / "last.ckpt")
    with pytest.raises(DataError, match=r"size mismatch.*Use the config of its own run"):
        read_checkpoint(tmp_path / "last.ckpt").load_into(model(hidden_size=32))


RUN = {"config": {"data": {}, "model": {}}, "num_processes": 1}


@each(
    ("damage", "where"),
    [
        ({"global_step": "x"}, r"\$\.global_step"),
        ({"global_step": float("nan")}, r"\$\.global_step"),
        ({"global_step": -1}, r"\$\.global_step"),
        ({"state_dict": {7: torch.ones(1)}}, r"\$\.state_dict"),
        ({"state_dict": {"model.a": [1.0]}}, r"\$\.state_dict"),
        ({"state_dict": []}, r"\$\.state_dict"),
        ({"run_config": [1]}, r"\$\.run_config"),
        ({"run_config": RUN | {"config": {"data": 7, "model": {}}}}, r"\$\.run_config\.config\.data"),
        ({"run_config": RUN | {"num_processes": "two"}}, r"num_processes"),
        ({"cod_lightning": {"num_moved": "x"}}, r"\$\.cod_lightning\.num_moved"),
        ({"base": {"name": 1}}, r"\$\.base"),
        ({"base": "x"}, r"\$\.base"),
    ],
)
def test_values_that_no_run_writes_are_refused_by_their_place(tmp_path: Path, damage: Any, where: str) -> None:
    torch.save(content(model()) | {"run_config": RUN} | damage, tmp_path / "last.ckpt")
    with pytest.raises(DataError, match=rf"it is damaged \(.*{where}.*Use another"):
        read_checkpoint(tmp_path / "last.ckpt")


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    weights = {f"model.{name}": value.long() for name, value in model().state_dict().items()}
    torch.save(content(model()) | {"state_dict": weights}, tmp_path / "last.ckpt")
    with pytest.raises(DataError, match="holds no weights of a policy"):
        read_checkpoint(tmp_path / "last.ckpt").load_into(model())


def test_what_is_no_checkpoint_of_ours_is_named(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    torch.save({"cod_lightning": {"version": "0"}, "state_dict": {}}, tmp_path / "empty.ckpt")
    (tmp_path / "noise.ckpt").write_bytes(b"noise")
    (tmp_path / "folder").mkdir()
    for name, kind, said in (
        ("foreign.ckpt", DataError, "not written by cod_lightning"),
        ("noise.ckpt", DataError, "cannot be read"),
        ("folder", ConfigError, r"a folder without \.metadata"),
        ("none.ckpt", ConfigError, "an existing checkpoint"),
    ):
        with pytest.raises(kind, match=said):
            read_checkpoint(tmp_path / name)
    with pytest.raises(DataError, match="no weights"):
        read_checkpoint(tmp_path / "empty.ckpt").weights()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "last.ckpt")
    with pytest.raises(ConfigError, match="a checkpoint, and it is no file"):
        read_checkpoint(tmp_path / "last.ckpt")


@pytest.mark.filterwarnings("ignore")
def test_shards_that_are_torn_are_named(tmp_path: Path) -> None:
    path = sharded(tmp_path / "last.ckpt", model())
    for shard in path.glob("*.distcp"):
        shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(DataError, match=r"last\.ckpt"):
        read_checkpoint(path).weights()


class Runs:
    """What a pickle makes by running something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made = function, arguments

    def __reduce__(self) -> Any:
        return self.made


@pytest.mark.filterwarnings("ignore")
@each("function", ["system", "print", "getattr", "open", "torch.hub.load", "metadata.os.system"])
def test_the_metadata_of_shards_runs_nothing(tmp_path: Path, function: str, capsys: pytest.CaptureFixture[str]) -> None:
    sharded(tmp_path / "last.ckpt", model())
    proof = tmp_path / "proof"
    made = {
        "system": Runs(os.system, f"touch {proof}"),
        "print": Runs(print, "proof"),
        "getattr": Runs(getattr, "x", "upper"),
        "open": Runs(open, str(proof), "w"),
        "torch.hub.load": Runs(torch.hub.load, "a/b", "c"),
    }.get(function)
    harmful = pickle.dumps(made)
    if made is None:
        harmful = (
            b"\x80\x04ctorch.distributed.checkpoint.metadata\nos.system\n(V" + f"touch {proof}".encode() + b"\ntR."
        )
    (tmp_path / "last.ckpt" / ".metadata").write_bytes(harmful)
    with pytest.raises(DataError, match=r"UnpicklingError: it names .*, which no checkpoint holds"):
        read_checkpoint(tmp_path / "last.ckpt").weights()
    assert not proof.exists()
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore")
def test_the_metadata_of_shards_changes_no_class(tmp_path: Path) -> None:
    sharded(tmp_path / "last.ckpt", model())
    harmful = b"\x80\x04cpathlib\nPosixPath\nN}V__cod__\nI1\ns\x86b."
    (tmp_path / "last.ckpt" / ".metadata").write_bytes(harmful)
    with pytest.raises(DataError, match="it changes a class, which no checkpoint holds"):
        read_checkpoint(tmp_path / "last.ckpt")
    assert not hasattr(Path, "__cod__")


@pytest.mark.filterwarnings("ignore")
def test_what_shards_hold_beside_tensors_runs_nothing_where_lightning_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    proof, path = tmp_path / "proof", tmp_path / "last.ckpt"
    read = {"optimizer_0": {"lr": 0.1, "betas": (0.9, 0.99)}}
    for lr in (0.5, Runs(os.system, f"touch {proof}")):
        save({"optimizer_0": {"lr": lr, "betas": (0.8, 0.9)}}, checkpoint_id=path, no_dist=True)
        torch.save({"cod_lightning": {}}, path / "meta.pt")
        read_checkpoint(path)
        with contextlib.nullcontext() if lr == 0.5 else pytest.raises(CheckpointException):
            load(read, checkpoint_id=path, no_dist=True)
    assert read == {"optimizer_0": {"lr": 0.5, "betas": (0.8, 0.9)}}
    assert not proof.exists()


def test_a_compressed_checkpoint_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    torch.save(content(model()), tmp_path / "last.ckpt")
    with zipfile.ZipFile(tmp_path / "last.ckpt") as archive, zipfile.ZipFile(tmp_path / "bomb.ckpt", "w", 8) as bomb:
        for name in archive.namelist():
            bomb.writestr(name, archive.read(name) + bytes(2**20) * name.endswith("data.pkl"))
    with pytest.raises(DataError, match="cannot be read"):
        read_checkpoint(tmp_path / "bomb.ckpt")


@each("part", ["cod_lightning", "run_config"])
def test_a_config_that_would_be_endless_where_it_is_written_out_is_refused(tmp_path: Path, part: str) -> None:
    shared: list[Any] = ["a"]
    for _ in range(40):
        shared = [shared, shared]
    harmful = {"latest": shared} if part == "cod_lightning" else RUN | {"config": {"data": {"x": shared}, "model": {}}}
    torch.save(content(model()) | {part: harmful}, tmp_path / "last.ckpt")
    with pytest.raises(DataError, match=r"it is damaged .*more than 100,000 values"):
        read_checkpoint(tmp_path / "last.ckpt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["file", "shards"])
def test_a_model_without_weights_gets_those_of_the_checkpoint_and_ties_them(tmp_path: Path, kind: str) -> None:
    kept, path = model(), tmp_path / "last.ckpt"
    kept.save_pretrained(tmp_path / "base")
    if kind == "file":
        torch.save(content(kept), path)
    else:
        sharded(path, kept)
    other = PretrainedPolicy(str(tmp_path / "base"), dtype="float32").skeleton()
    assert read_checkpoint(path).load_into(other) is torch.float32
    assert other.get_output_embeddings().weight is other.get_input_embeddings().weight
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), other.parameters(), strict=True))
