"""The Hugging Face folder of a GGUF file, made once and kept in the cache."""

import hashlib
import json
import os
import shutil
import struct
import sys
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from cod_lightning.cache import MANIFEST, made_once
from cod_lightning.errors import ConfigError, answering
from cod_lightning.extras import require
from cod_lightning.models.gguf.architectures import as_trained, config_of, named_weights, skeleton
from cod_lightning.models.gguf.header import GGUFFile, Unreadable
from cod_lightning.models.gguf.tokenizer import fast_tokenizer, vocabulary_of

_found: dict[tuple[str | None, str], Path] = {}
"""Folders that this process has compared with their digests, by cache and identity."""


def checkpoint_folder(path: str, key: str) -> str:
    """The folder or hub name to load: `path`, the value of `key`, or of a GGUF file the folder of its weights in float32.

    A GGUF file is named by itself, by the only one in a folder without config.json, or by the installed package that holds it.

    Raises:
        ConfigError: For a GGUF file that cannot be read as a causal language model with its tokenizer.
    """
    file = gguf_file(path, key)
    if file is None:
        return path
    require("gguf", key, path)
    facts = file.stat()
    digest = _digest_of(file.resolve(), facts.st_size, facts.st_mtime_ns)
    versions = (transformers.__version__, version("tokenizers"), version("gguf"))
    identity = hashlib.sha256("\0".join((digest, *versions, *_code())).encode()).hexdigest()[:16]
    known = (os.environ.get("COD_LIGHTNING_CACHE"), identity)
    if known not in _found or not (_found[known] / MANIFEST).is_file():
        _found[known] = made_once("gguf", identity, partial(_make, file, path, key), "gguf")
    return str(_found[known])


def gguf_file(path: str, key: str) -> Path | None:
    """The GGUF file that `path`, the value of `key`, names; None for a folder or hub name in Hugging Face's form."""
    if not path:
        return None
    place = Path(path)
    if place.suffix == ".gguf" and not place.is_dir():
        if not place.is_file():
            raise ConfigError(key, path, "a GGUF file, and there is none of this name", "Check the spelling.")
        return place
    # a hub name has one slash at most
    is_place = place.is_absolute() or path.startswith((".", "~")) or len(place.parts) > 2
    if is_place and not place.exists():
        raise ConfigError(key, path, "a folder of a model, and there is none of this name", "Check the spelling.")
    if (place / "config.json").is_file():
        return None
    files = sorted(place.glob("*.gguf"))
    if not place.is_dir():
        module = path.replace("-", "_")
        spec = find_spec(module) if module.isidentifier() else None
        folders = (spec.submodule_search_locations or ()) if spec else ()
        files = sorted(file for folder in folders for file in Path(folder).rglob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:4]) + ", ..." * (len(files) > 4)
        raise ConfigError(key, path, f"one GGUF file in it, and there are {len(files)}: {names}", "Name the file.")
    return files[0] if files else None


@lru_cache
def _digest_of(file: Path, size: int, time_ns: int) -> str:
    """SHA-256 of a file as it was then."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _code() -> list[str]:
    """What reads a file, since a checkout changes without a version of its own."""
    return [source.read_text(encoding="utf-8") for source in sorted(Path(__file__).parent.glob("*.py"))]


def _make(file: Path, path: str, key: str, folder: Path) -> None:
    """Write the folder; of what is refused, or ends half-way, nothing stays."""

    def refused(
        expected: str, remedy: str = "Check the file, or take the model in Hugging Face's form."
    ) -> ConfigError:
        return ConfigError(key, path, expected, remedy)

    print(f"gguf: {file} is dequantised once; then cached", file=sys.stderr)
    try:
        with answering(refused, "a causal language model in GGUF"):
            try:
                folder.mkdir()
                _convert(GGUFFile(file), folder)
            except Unreadable as error:
                raise refused(error.expected, error.remedy) from error
            except OSError as error:
                if error.errno is None:  # a library that cannot read what it was given
                    raise
                expected = f"a folder to which the weights can be written in float32 ({error.strerror})"
                remedy = "Make room, or name another one."
                raise ConfigError("COD_LIGHTNING_CACHE", folder.parent, expected, remedy) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _check_read(built: PreTrainedTokenizerFast, folder: Path) -> None:
    """`Unreadable` where transformers puts an architecture's own tokenizer in place of what the folder holds."""
    read = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for text in ("1  2", " 1234", "DON'T I'm", "e\u0301 \n\n\u4f60\u597d!\t", *built.all_special_tokens):
        found, right = (one.encode(text, add_special_tokens=False) for one in (read, built))
        if found != right:
            expected = f"a tokenizer that transformers reads right: of {text!r:.60} it makes {found}, not {right}"
            raise Unreadable(f"{expected:.300}", "Take the model in Hugging Face's form.")


def _convert(file: GGUFFile, folder: Path) -> None:
    """Write config, tokenizer and weights; what is refused is refused before the weights are written."""
    if file.values.get("split.count", 1) > 1:
        raise Unreadable("a model in one file, not one of several", "Join them: llama-gguf-split --merge.")
    config = config_of(file)
    vocabulary = vocabulary_of(file, config.vocab_size)
    weights = list(named_weights(file, config))
    built = fast_tokenizer(vocabulary, file)
    built.save_pretrained(folder)
    config.architectures, config.dtype = [type(skeleton(config)).__name__], "float32"
    config.save_pretrained(folder)
    special = {f"{name}_token_id": vocabulary.special.get(name) for name in ("bos", "pad")}
    GenerationConfig(eos_token_id=sorted(vocabulary.ends), **special).save_pretrained(folder)
    _check_read(built, folder)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape, _ in weights:
        size = 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Written tensor by tensor in safetensors' format, since its own writer holds all of them twice.
    with (folder / "model.safetensors").open("wb") as written:
        written.write(struct.pack("<Q", len(text)) + text)
        for _, _, theirs in weights:
            written.write(as_trained(file.tensor(theirs), theirs, config).data)
