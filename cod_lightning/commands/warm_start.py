"""The warm start: runs once for a config and a seed, and is kept in a cache for every later run that asks for the same."""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from filelock import AcquireReturnProxy, FileLock, Timeout
from lightning.fabric.utilities.rank_zero import rank_zero_only

from cod_lightning import __version__
from cod_lightning.adapters import has_adapter
from cod_lightning.checkpoints.integrity import manifest_damage, write_manifest
from cod_lightning.commands.config_files import expand, find_config
from cod_lightning.commands.lightning_cli import CodCLI, start
from cod_lightning.commands.parser import OneLine, program
from cod_lightning.commands.sources import class_paths, sources
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.errors import ConfigError
from cod_lightning.folder_lock import check_folder
from cod_lightning.models.gguf import gguf_file
from cod_lightning.models.lora import merged
from cod_lightning.modules import WarmStartModule
from cod_lightning.trusted import check_harmless

_NAMING = ("path", "weights", "tasks", "first")
"""Last parts of the keys by which environments, policies and contexts name files and folders."""
_MOST_DIGESTED = 2**26
"""Bytes of a file whose content decides, and not its time."""


class WarmStartCLI(CodCLI):
    """`CodCLI` for supervised learning on demonstrations."""

    command = "warm_start"

    def before_instantiate_classes(self) -> None:
        """As for any run, also where a config of foreign origin names this warm start."""
        check_harmless(yaml.safe_load(self._parser(self.subcommand).dump(self._own(), skip_none=False)))
        super().before_instantiate_classes()


def run(argv: Sequence[str]) -> int:
    """`python -m cod_lightning warm_start --config ...`: as `fit`, and the result as a Hugging Face folder."""
    if any(arg.partition("=")[0] == "--cached" for arg in argv):
        return _fill_cache(argv)
    expanded = expand(argv)
    _check_supervised(expanded.argv, "--config")
    WarmStartCLI.run_name = expanded.names[0] if expanded.names else "warm_start"
    cli = start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, ["fit", *expanded.argv])
    _save(cli, folder := cli.root / "policy")
    if cli.trainer.is_global_zero:
        print(f"wrote {folder}")
    return 0


def _check_supervised(argv: Sequence[str], key: str) -> None:
    """Raise `ConfigError` for a config of `fit`, whose keys this command does not have."""
    for path in [path for flag, path in pairwise(argv) if flag == "--config"]:
        content = yaml.safe_load(Path(path).read_text())
        if "engine" in (content.get("data") or {}):
            names = content.get("warm_start") or "warm_start/levers"
            expected = "a config of demonstrations, without an engine"
            raise ConfigError(key, Path(path).stem, expected, f"Did you mean {names}?")


def ensure_warm_start(
    config: str, seed: int, torch_threads: int | None, check: Callable[[WarmStartCLI], None] | None = None
) -> Path:
    """The folder of the warm-started policy, trained now unless the cache has it; `check` sees before what would be trained."""
    plain = expand(["--config", config]).argv
    _check_supervised(plain, "warm_start")
    argv = [*plain, "--seed_everything", str(seed), "--overwrite", "true"]
    if torch_threads is not None:
        argv += ["--torch_threads", str(torch_threads)]
    cache = Path(os.environ.get("COD_LIGHTNING_CACHE") or Path.home() / ".cache" / "cod_lightning") / "warm_start"
    check_folder(cache, "COD_LIGHTNING_CACHE")
    unbuilt = start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, argv, execute=False)
    if check is not None:
        check(unbuilt)
    folder = cache / _key(unbuilt.parser.dump(unbuilt.config))
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check_own(cache)
    with _alone(folder):
        _sweep(folder)
        damage = "it is a link" if folder.is_symlink() else manifest_damage(folder / "policy", folder.name)
        if damage is None:
            rank_zero_only(print)(f"warm start: cached in {folder}", file=sys.stderr)
            return folder / "policy"
        if os.path.lexists(folder):
            print(f"warm start: {folder} is not used and is made anew, since {damage}", file=sys.stderr)
        print(f"warm start: {config}, once; then cached in {folder}", file=sys.stderr)
        begun = time.perf_counter()
        _train_into(folder, argv)
        print(f"warm start: done in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return folder / "policy"


def _train_into(folder: Path, argv: Sequence[str]) -> None:
    """Train in a folder beside it, which takes its place once it is whole; the lock is held."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as beside:
        working = Path(beside) / "run"
        to = ["--trainer.default_root_dir", str(working)]
        cli = start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, ["fit", *argv, *to])
        _save(cli, working / "policy")
        write_manifest(working / "policy", folder.name)
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        working.rename(folder)


def _check_own(cache: Path) -> None:
    """Raise `ConfigError` where others may put a policy into the cache."""
    facts = cache.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_IWOTH:
        expected = "a folder of this user's that not everyone can write, since what lies there is trained on"
        remedy = f"Change {cache}, or name another."
        raise ConfigError("COD_LIGHTNING_CACHE", cache.parent, expected, remedy)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left beside it; its lock is held, so no process trains it."""
    for left in folder.parent.glob(f"{folder.name}.*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def _alone(folder: Path) -> AcquireReturnProxy:
    """The lock of this warm start, held: of several processes that want it one trains, and the others wait and find it."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        rank_zero_only(print)(f"warm start: another process makes {folder}; waiting for it", file=sys.stderr)
        return lock.acquire()


def _fill_cache(argv: Sequence[str]) -> int:
    """`warm_start --cached CONFIG`: what `fit` with these values of the same keys will find."""
    parser = OneLine(
        prog=f"{program()} warm_start",
        description="Make the warm start that `fit` with warm_start: CONFIG looks for in its cache, unless it is there.",
    )
    parser.add_argument("--cached", required=True, metavar="CONFIG", help="As in the key warm_start.")
    parser.add_argument("--seed_everything", type=int, default=1, help="As in `fit`.")
    parser.add_argument("--torch_threads", type=int, default=None, help="As in `fit`.")
    options = parser.parse_args(list(argv))
    find_config(options.cached, key="--cached")
    _check_supervised(expand(["--config", options.cached]).argv, "--cached")
    print(ensure_warm_start(options.cached, options.seed_everything, options.torch_threads))
    return 0


def _save(cli: WarmStartCLI, folder: Path) -> None:
    model = cli.model.model
    plain = merged(model) if has_adapter(model) else cli.model.plain_model()
    weights = None if has_adapter(model) else dict(cli.model.whole_weights())
    if cli.trainer.is_global_zero:
        plain.save_pretrained(folder, state_dict=weights)
        cli.datamodule.chat.tokenizer.save_pretrained(folder)


def _key(config: str) -> str:
    """Whatever decides the result: the resolved config (with its seed), the versions that compute it, the code of its classes, and
    the files that it names.

    A world that its author has edited keeps its class path, and demonstrates something else; so does a file with other rows.
    """
    modules = {name.rpartition(".")[0] for name in class_paths(config)}
    code = (path.read_text(errors="replace") for path in sources(modules))
    content = yaml.safe_load(config)
    files = [mark for part in ("data", "model") for mark in _marks(content.get(part))]
    parts = (config, __version__, torch.__version__, transformers.__version__, *code, *files)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _marks(value: Any, key: str = "") -> Iterator[str]:
    """Of each file that a value of the config names, alone or in a folder or package: a digest, or of a large one size and time."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _marks(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _marks(inner)
    elif isinstance(value, str) and value and key.endswith(_NAMING):
        place = Path(value) if os.path.exists(value) else gguf_file(value, key)
        for file in sorted(path for path in (place, *place.rglob("*")) if path.is_file()) if place else ():
            facts = file.stat()
            large = facts.st_size > _MOST_DIGESTED
            mark = f"{facts.st_size} {facts.st_mtime_ns}" if large else hashlib.sha256(file.read_bytes()).hexdigest()
            yield f"{file} {mark}"
