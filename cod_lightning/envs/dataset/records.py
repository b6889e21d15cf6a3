"""Rows of files on disk, JSON Lines or Parquet, and of folders of them.

Errors name the file and the line (JSON Lines) or the row (from 1).
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.files import readable

_KEY = "data.env.path"
_LINES = (".jsonl", ".ndjson", ".json")
_TABLE = ".parquet"
_SAVED = ".arrow"
"""Of what `save_to_disk` of Hugging Face's datasets writes."""
_CONVERT = "In Python: datasets.load_from_disk(PATH).to_parquet('rows.parquet')."
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
    """The file itself, or those of a folder, all of one kind, in the order of their names."""
    kinds = ", ".join((*_LINES, _TABLE))
    if path.is_file():
        if _suffix(path) not in (*_LINES, _TABLE):
            remedy = _CONVERT if _suffix(path) == _SAVED else "Convert it, or give it the suffix of what it holds."
            raise ConfigError(_KEY, path, f"a file that ends with {kinds}, or a folder of them", remedy)
        return [path]
    if not path.is_dir():
        raise ConfigError(_KEY, path, "a file or a folder that exists", "Correct the path.")
    found = [file for file in sorted(path.rglob("*")) if _suffix(file) in (*_LINES, _TABLE, _SAVED) and file.is_file()]
    has = sorted({_suffix(file) for file in found})
    if len(has) != 1 or _SAVED in has:
        remedy = _CONVERT if _SAVED in has else "Name a file, or a folder that has nothing else."
        shown = f"{path} with {', '.join(has) or 'none of them'}"
        raise ConfigError(_KEY, shown, f"a folder with files of one kind of {kinds}", remedy)
    return found


def _lines(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """These columns of each line; a blank line is empty."""
    for row in objects(file):
        yield {} if row is None else {name: row[name] for name in columns if name in row} or {"": None}


def objects(file: Path, key: str = _KEY) -> Iterator[dict[str, Any] | None]:
    """A JSON object a line of the file, the value of `key`; None for a blank line. A byte order mark is left out."""
    try:
        content = readable(file).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise ConfigError(key, file, expected, "Correct the path.") from error
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
    """Rows of a Parquet file, a few at a time: a text that a column repeats takes room on disk once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_columns(file, columns, _names(file))
    place, done = str(file), 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=list(columns)):
                place = f"{file}, rows {done + 1} to {done + len(batch)}"
                batch.validate(full=True)  # texts of a damaged one may end outside of it
                rows = batch.to_pylist()
                place, done = str(file), done + len(batch)
                yield from rows
    except (OSError, ValueError, ArithmeticError, pa.ArrowException) as error:
        # also for text that is no UTF-8, and times that no calendar has
        raise _unread(place, error) from error


def _names(file: Path) -> list[str]:
    """Columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file).names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unread(str(file), error) from error


def _unread(place: str, error: Exception) -> ConfigError:
    return ConfigError(_KEY, place, f"a file that pyarrow reads ({in_a_line(error, 200)})", "Write it again.")


def _check_columns(file: Path, columns: tuple[str, ...], names: list[str]) -> None:
    """Raise `ConfigError` where the file does not have each column once."""
    for name in columns:
        if names.count(name) != 1:
            shown = ", ".join(names[:_MOST_SHOWN])
            expected = f"one column '{name}'; it has {shown}"
            raise ConfigError(_KEY, file, expected, "Name a column that this file has once.")
