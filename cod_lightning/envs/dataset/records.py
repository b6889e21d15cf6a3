"""Rows of files on disk: JSON Lines, Parquet, Arrow, and folders as Hugging Face's `datasets` writes them.

Errors name the file and the line (JSON Lines) or the row (from 1).
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, in_a_line

_KEY = "data.env.path"
_LINES = (".jsonl", ".ndjson", ".json")
_TABLES = (".parquet", ".arrow")
_AT_ONCE = 256
"""Rows of a table."""
_MOST_SHOWN = 12
"""Names that an error lists."""


def read_rows(path: str, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row's place, as `FILE:NUMBER`, and its values in these columns. Raises `ConfigError`."""
    for file in _files(Path(path)):
        read = _lines if _suffix(file) in _LINES else _table
        for number, row in enumerate(read(file, columns), start=1):
            yield f"{file}:{number}", row


def columns_of(path: str) -> list[str]:
    """Names of the columns of all files, in the order in which they first occur. Raises `ConfigError`."""
    found: dict[str, None] = {}
    for file in _files(Path(path)):
        for names in objects(file) if _suffix(file) in _LINES else (_names(file),):
            found |= dict.fromkeys(names or ())
    return [*found]


def _suffix(file: Path) -> str:
    return file.suffix.lower()


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a folder: what `save_to_disk` lists, else all of one kind, in the order of their names."""
    if path.is_file():
        if _suffix(path) not in (*_LINES, *_TABLES):
            expected = f"a file that ends with {', '.join((*_LINES, *_TABLES))}, or a folder of them"
            raise ConfigError(_KEY, path, expected, "Convert it, or give it the suffix of what it holds.")
        return [path]
    if not path.is_dir():
        raise ConfigError(_KEY, path, "a file or a folder that exists", "Correct the path.")
    if (named := path / "dataset_dict.json").is_file():
        splits = _listed(named, "splits")
        expected = f"one dataset; this folder holds several ({', '.join(splits)})"
        raise ConfigError(_KEY, path, expected, f"Name the folder of one, such as {path}/{splits[0]}.")
    if (state := path / "state.json").is_file():
        return [path / name for name in _listed(state, "_data_files", "filename")]
    found = [file for file in sorted(path.rglob("*")) if _suffix(file) in (*_LINES, *_TABLES) and file.is_file()]
    kinds = sorted({_suffix(file) for file in found})
    if len(kinds) != 1:
        has = f"{path} with {', '.join(kinds) if kinds else 'none of them'}"
        expected = f"a folder with files of one kind of {', '.join((*_LINES, *_TABLES))}"
        raise ConfigError(_KEY, has, expected, "Name a file, or a folder that has nothing else.")
    return found


def _listed(file: Path, key: str, name: str | None = None) -> list[str]:
    """Names in a list of the file's, or in its objects; a folder before one is left out."""
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))[key]
        names = [Path(one if name is None else one[name]).name for one in listed]
        if not names or not all(names):
            raise ValueError
        return names
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        expected = f"a file of Hugging Face's datasets with names in a list '{key}' ({type(error).__name__})"
        raise ConfigError(_KEY, file, expected, "Save the dataset again.") from error


def _lines(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """These columns of each line; a blank line is empty."""
    for row in objects(file):
        yield {} if row is None else {name: row[name] for name in columns if name in row} or {"": None}


def objects(file: Path, key: str = _KEY) -> Iterator[dict[str, Any] | None]:
    """A JSON object a line of the file, the value of `key`; None for a blank line. A byte order mark is left out."""
    try:
        content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise ConfigError(key, file, f"a file that can be read ({error.strerror})", "Correct the path.") from error
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if not raw.strip():
            yield None
            continue
        try:
            row = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            expected = f"a JSON object in UTF-8 ({error})"
            remedy = "Correct the line." if _suffix(file) != ".json" else "One object a line; a list is no JSON Lines."
            raise ConfigError(key, f"{file}:{number}", expected, remedy) from error
        if not isinstance(row, dict):
            expected = f"a JSON object, not a {type(row).__name__}"
            raise ConfigError(key, f"{file}:{number}", expected, "Put one object on each line.")
        yield row


def _table(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file, or of an Arrow file in either of its formats."""
    import pyarrow as pa

    _check_columns(file, columns, _names(file))
    place, done = str(file), 0
    try:
        for batch in _batches(file, columns):
            place = f"{file}, rows {done + 1} to {done + len(batch)}"
            batch.validate(full=True)  # texts of a damaged one may end outside of it
            rows = batch.to_pylist()
            place, done = str(file), done + len(batch)
            yield from rows
    except (OSError, ValueError, ArithmeticError, pa.ArrowException) as error:
        # also for text that is no UTF-8, and times that no calendar has
        raise _unread(place, error) from error


def _batches(file: Path, columns: tuple[str, ...]) -> Iterator[Any]:
    """A few rows at a time: a text that a column repeats takes room on disk once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if _suffix(file) == ".parquet":
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(_AT_ONCE, columns=list(columns))
    else:
        with pa.memory_map(str(file)) as source:
            yield from _arrow(source).read_all().select(columns).to_batches(_AT_ONCE)


def _names(file: Path) -> list[str]:
    """Columns of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if _suffix(file) == ".parquet":
            return pq.read_schema(file).names
        with pa.memory_map(str(file)) as source:
            return _arrow(source).schema.names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unread(str(file), error) from error


def _arrow(source: Any) -> Any:
    """Reads an Arrow file, in the format of streams or of files."""
    import pyarrow as pa

    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        return pa.ipc.open_file(source)


def _unread(place: str, error: Exception) -> ConfigError:
    return ConfigError(_KEY, place, f"a file that pyarrow reads ({in_a_line(error, 200)})", "Write it again.")


def _check_columns(file: Path, columns: tuple[str, ...], names: list[str]) -> None:
    """Raise `ConfigError` where the file does not have each column once."""
    for name in columns:
        if names.count(name) != 1:
            shown = ", ".join(names[:_MOST_SHOWN])
            expected = f"one column '{name}'; it has {shown}"
            raise ConfigError(_KEY, file, expected, "Name a column that this file has once.")
