"""A checkpoint of a run: its description, its policy's weights, in one file or in the shards of a folder, and whether it is whole.

Whole is what is complete, with every byte as it was written.
"""

import json
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from msgspec import Meta, Struct
from torch import Tensor
from torch.distributed.checkpoint import metadata as metadata_records
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from transformers import PreTrainedModel

from cod_lightning.adapters import BaseWeights, adapter_weights
from cod_lightning.cache import digests
from cod_lightning.errors import DataError, in_a_line
from cod_lightning.files import EXTRA, METADATA, checkpoint_file, sync

MARKER = "complete.json"
"""File of a sharded checkpoint: digests of the others (`seal`)."""


def damage(path: Path) -> str | None:
    """What is wrong with the checkpoint at `path`, or None. Reads all of it.

    A single file is a zip archive, in which torch keeps a CRC-32 of every record. A folder of shards is as `seal` left it.
    """
    if path.is_dir():
        return _damage_of_shards(path)
    if not path.is_file():
        return "it is missing"
    if not path.stat().st_size:
        return "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            record = archive.testzip()
        _read(path)
    except Exception as error:  # a flipped bit makes zipfile and torch raise almost anything
        return f"it cannot be read ({type(error).__name__})"
    return None if record is None else f"{record} in it is not as it was written"


def see_readable(content: Any, key: str = "it") -> None:
    """Raise `RuntimeError` that names what torch would write and not read again, such as a number of NumPy in a source's state."""
    file = BytesIO()
    try:
        torch.save(_without_tensors(content), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:  # a class may do anything to pickle
        for name, inner in content.items() if type(content) is dict else ():
            see_readable(inner, str(name) if key == "it" else f"{key}.{name}")
        kinds = "plain containers, numbers, texts or tensors, which alone can be read again"
        raise RuntimeError(f"{key} is a {type(content).__name__}, not {kinds}") from error


def _without_tensors(content: Any) -> Any:
    if type(content) in (dict, OrderedDict):
        return {name: _without_tensors(value) for name, value in content.items()}
    if type(content) in (list, tuple):
        return [_without_tensors(value) for value in content]
    return None if isinstance(content, Tensor) else content


def seal(folder: Path, shards: Mapping[str, str]) -> None:
    """Mark a sharded checkpoint complete, last of all; `shards` are the digests of what the ranks wrote."""
    others = [path for path in folder.iterdir() if path.name not in (*shards, MARKER)]
    marker = folder / MARKER
    marker.write_text(json.dumps({"sha256": {**shards, **digests(others)}}, indent=1) + "\n")
    sync(marker)
    sync(folder)


def _damage_of_shards(folder: Path) -> str | None:
    for name in (METADATA, EXTRA, MARKER):
        if not (folder / name).is_file():
            return f"it is incomplete: {name} is missing"
    try:
        expected: dict[str, str] = json.loads((folder / MARKER).read_text())["sha256"]
        missing = [name for name in expected if not (folder / name).is_file()]
        changed = [name for name in expected if not missing and digests([folder / name])[name] != expected[name]]
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        return f"{MARKER} in it cannot be read ({type(error).__name__})"
    if missing:
        return f"it is incomplete: {missing[0]} is missing"
    return f"{changed[0]} in it is not as it was written" if changed else None


UNFINISHED = ".writing"
"""Ends the name of a checkpoint that is being written, or was when the run was killed."""
_IN_SHARDS = "state_dict."
"""What the names of the module's tensors begin with in shards, as ModelParallelStrategy writes them."""
_IN_METADATA = {
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "WindowsPath"),
}
"""Beside the records of `torch.distributed.checkpoint.metadata`, and dtypes."""


_MOST_VALUES = 100_000
"""In a run's config, as in `trusted`."""


class _Config(Struct):
    data: dict[str, Any]
    model: dict[str, Any]
    trainer: dict[str, Any] = {}


class _RunConfig(Struct):
    config: _Config
    num_processes: int


class _Own(Struct):
    version: str | None = None
    num_moved: int = 1


class _Content(Struct):
    """What is read of a checkpoint, beside what Lightning reads; a file of others may hold anything."""

    cod_lightning: _Own
    global_step: Annotated[int, Meta(ge=0)] = 0
    state_dict: dict[str, Tensor] = {}
    run_config: _RunConfig | None = None
    base: BaseWeights | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that this project wrote; weights stay on disk until they are read."""

    path: Path
    content: Mapping[str, Any]

    @property
    def global_step(self) -> int:
        """Optimizer updates behind it."""
        return int(self.content.get("global_step", 0))

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages that wrote it."""
        found = {"cod_lightning": self.content["cod_lightning"].get("version")}
        found["lightning"] = self.content.get("pytorch-lightning_version")
        return {name: str(version) for name, version in found.items() if version}

    def weights(self) -> dict[str, Tensor]:
        """The policy's weights by their names in the model. Raises `DataError` where there are none."""
        weights = _renamed(self.module_state(), "model.")
        if not any(weight.is_floating_point() for weight in weights.values()):
            raise DataError(f"{self.path} holds no weights of a policy. Use a checkpoint of a `fit` run.")
        return weights

    def module_state(self) -> dict[str, Tensor]:
        """All tensors of the LightningModule by their names in it, a frozen reference's too; those of shards are read."""
        try:
            return _shards(self.path) if self.path.is_dir() else dict(self.content["state_dict"])
        except (Exception, CheckpointException) as error:  # torch's own is a BaseException
            raise _unreadable(self.path, error) from error

    def load_into(self, model: PreTrainedModel, base: BaseWeights | None = None) -> torch.dtype:
        """Give the model these weights and return their precision. Those of an adapter belong on `base`.

        A model on the meta device gets the tensors themselves, mapped from a single file.
        """
        weights, empty = self.weights(), model.device.type == "meta"
        if base is not None:
            base.check(self.content.get("base"), self.path)
            if weights.keys() != adapter_weights(model).keys():
                raise DataError(
                    f"{self.path} holds an adapter of other layers than model.policy.targets. Use its own run's config."
                )
        elif "base" in self.content:
            raise DataError(
                f"{self.path} holds an adapter for {self.content['base']['name']}, not the weights of a whole model. "
                "Choose model.policy=LoRAPolicy or model.policy=QLoRAPolicy, or use the config of its own run."
            )
        try:
            model.load_state_dict(weights, strict=base is None, assign=empty)
        except RuntimeError as error:
            said = f"does not fit the model of model.policy ({in_a_line(error, 300)})"
            raise DataError(f"{self.path} {said}. Use the config of its own run.") from error
        if empty:
            model.tie_weights()
        return next(weight.dtype for weight in weights.values() if weight.is_floating_point())


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint at `path`, with its tensors mapped, not read. Raises what a person can act on."""
    file = checkpoint_file(path)
    if Path(path).is_dir():
        _see_harmless(Path(path))
    try:
        content = _read(file)
    except Exception as error:
        raise _unreadable(Path(path), error) from error
    if not isinstance(content, dict) or not isinstance(content.get("cod_lightning"), dict):
        raise DataError(f"ckpt_path is {path}; it was not written by cod_lightning. Use a checkpoint of a `fit` run.")
    try:
        msgspec.convert(content, _Content)
        if _num_values([content["cod_lightning"], content.get("run_config")], {}) > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values, written out, in its config")
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise DataError(f"ckpt_path is {path}; it is damaged ({error}). Use another.") from error
    return Checkpoint(Path(path), content)


def _read(file: Path) -> Any:
    """What torch reads, with tensors mapped. Raises almost anything, and `ValueError` for what is compressed, which torch never
    writes: it would be far larger in memory."""
    with zipfile.ZipFile(file) as archive:
        if any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist()):
            raise ValueError("it is compressed")
    return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def _num_values(one: Any, known: dict[int, float]) -> float:
    """Values in it, those that stand in several places counted in each; infinitely many where it holds itself."""
    if not isinstance(one, Mapping | list | tuple):
        return 1
    if id(one) not in known:
        known[id(one)] = math.inf
        inner = one.values() if isinstance(one, Mapping) else one
        known[id(one)] = 1 + sum(_num_values(value, known) for value in inner)
    return known[id(one)]


def _shards(folder: Path) -> dict[str, Tensor]:
    """The module's tensors, put together in this process; the optimizer's shards are not read."""
    reader = FileSystemReader(folder)
    kept = reader.read_metadata().state_dict_metadata
    wanted: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in kept.items()
        if name.startswith(_IN_SHARDS) and isinstance(entry, TensorStorageMetadata)
    }
    load(wanted, storage_reader=reader, no_dist=True)
    return _renamed(wanted, _IN_SHARDS)


class _MetadataUnpickler(pickle._Unpickler):  # pyright: ignore  (in Python, since C's lets no step be replaced)
    """Makes what torch writes into `.metadata`: sizes, dtypes, paths, and the records of where a tensor lies."""

    def load_build(self) -> None:
        """Give an object its values; raises `UnpicklingError` for a class, which all of this process have."""
        if callable(self.stack[-2]) or isinstance(self.stack[-2], Enum):  # pyright: ignore
            raise pickle.UnpicklingError("it changes a class, which no checkpoint holds")
        super().load_build()  # pyright: ignore

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}  # pyright: ignore

    def find_class(self, module: str, name: str) -> Any:
        """The named class; raises `UnpicklingError` for all others, whose making could run anything."""
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in _IN_METADATA or module == metadata_records.__name__:
            found = super().find_class(module, name)
            if module != metadata_records.__name__ or getattr(found, "__module__", "") == module:
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint holds")


def _see_harmless(folder: Path) -> None:
    """Raise `DataError` where reading the shards' `.metadata`, a pickle, would make anything but what torch puts there.

    From here on torch makes nothing but tensors and plain values: what is no tensor in shards, it would unpickle as it is.
    """
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        with (folder / METADATA).open("rb") as file:
            _MetadataUnpickler(file).load()
    except Exception as error:  # damage makes pickle raise almost anything
        raise _unreadable(folder, error) from error


def _renamed(tensors: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _unreadable(path: Path, error: BaseException) -> DataError:
    said = (
        f": {error}" if isinstance(error, pickle.UnpicklingError) and "which no checkpoint holds" in str(error) else ""
    )
    return DataError(
        f"ckpt_path is {path}; it cannot be read as a checkpoint ({type(error).__name__}{said}). Use another."
    )


class DurableIO(TorchCheckpointIO):
    """Lightning's own collects the file in memory, writes it to TMPDIR and moves it, without a sync."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """The file of before, or the new one, whatever happens in between. Raises `OSError` where there is no room."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{target.name}{UNFINISHED}")
        try:
            with beside.open("wb") as file:  # torch given a path hides the reason of a failure
                torch.save(checkpoint, file)
            sync(beside)
            beside.replace(target)
            sync(target.parent)
        except Exception:
            beside.unlink(missing_ok=True)
            raise


class ShardReader(TorchCheckpointIO):
    """Lightning's reader of single files; a folder's weights are put together. Of an optimizer's shards it reads nothing."""

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not Path(path).is_dir():
            return super().load_checkpoint(path, *args, **kwargs)
        found = read_checkpoint(path)
        return {**found.content, "state_dict": found.module_state()}
