"""Rows are read from every kind of file alike, and what cannot be read is named with its place."""

import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cod_lightning.envs.dataset.records import read_rows
from cod_lightning.errors import ConfigError
from tests.cases import each

ROWS = [{"prompt": f"q{n}", "answer": n, "more": [n]} for n in range(7)]
WANTED = [{"prompt": row["prompt"], "answer": row["answer"]} for row in ROWS]


def read(path):
    return [row for _, row in read_rows(str(path), ("prompt", "answer")) if row]


def write_lines(path):
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in ROWS))
    return path


def write_marked(path):
    """As editors on Windows write it: a byte order mark, and CRLF."""
    path.write_bytes("\ufeff".encode() + write_lines(path).read_bytes().replace(b"\n", b"\r\n"))
    return path


def write_parquet(path):
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def write_parts(path):
    (path / "data").mkdir(parents=True)
    for n, part in enumerate((ROWS[:3], ROWS[3:])):
        pq.write_table(pa.Table.from_pylist(part), path / "data" / f"train-0000{n}-of-00002.parquet")
    (path / "README.md").write_text("a card")
    return path


@each(
    "write",
    [
        lambda folder: write_lines(folder / "a.jsonl"),
        lambda folder: write_marked(folder / "A.JSONL"),
        lambda folder: write_parquet(folder / "a.parquet"),
        lambda folder: write_parts(folder / "parts"),
    ],
)
def test_every_kind_of_file_gives_the_same_rows(tmp_path, write):
    assert read(write(tmp_path)) == WANTED


@each(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", b'{"prompt": "q", "answer": 1}\n{"prompt": ', r"a\.jsonl:2.*JSON object"),
        ("a.jsonl", b"\n\n[1]", r"a\.jsonl:3.*not a list"),
        ("a.jsonl", b'{"prompt": "\xff"}', r"a\.jsonl:1.*UTF-8"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1"),
        ("a.json", b'[\n{"prompt": "q"}]', r"a\.json:1.*a list is no JSON Lines"),
        ("a.parquet", b"PAR1", r"a\.parquet.*pyarrow reads"),
        ("a.arrow", b"", r"a\.arrow.*ends with \.jsonl.*to_parquet"),
        ("a.csv", b"q,1", r"a\.csv.*ends with \.jsonl"),
        ("a/data.arrow", b"", r"a with \.arrow; .*to_parquet"),
        ("a.txt/b", b"", "Correct the path|files of one kind"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path, name, content, complaint):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        read(path if path.parent == tmp_path else path.parent)


def test_a_column_whose_name_is_no_text_is_refused(tmp_path):
    path = write_parquet(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes().replace(b"prompt", b"\xffrompt"))
    with pytest.raises(ConfigError, match=r"a\.parquet.*pyarrow reads"):
        read(path)


def test_a_small_table_of_long_texts_is_read_a_few_rows_at_a_time(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["q" * 100_000]))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt": texts, "answer": ["a"] * 1000}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 250_000
    tracemalloc.start()
    assert sum(1 for _ in read_rows(str(path), ("prompt", "answer"))) == 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80_000_000, "of 100 million letters"


def test_a_folder_with_files_of_two_kinds_and_a_missing_column_are_named(tmp_path):
    write_lines(tmp_path / "a.jsonl")
    write_parquet(tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"with \.jsonl, \.parquet"):
        read(tmp_path)
    with pytest.raises(ConfigError, match=r"one column 'question'; it has prompt, answer, more"):
        list(read_rows(str(tmp_path / "b.parquet"), ("question",)))
    twice = pa.Table.from_arrays([pa.array(["q"]), pa.array(["p"])], names=["prompt", "prompt"])
    pq.write_table(twice, tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"one column 'prompt'; it has prompt, prompt"):
        list(read_rows(str(tmp_path / "b.parquet"), ("prompt",)))


def test_values_that_python_cannot_hold_are_named_with_their_rows(tmp_path):
    never = pa.array([2**62] * 3, pa.timestamp("us"))
    no_text = pa.array([b"\xff"] * 3, pa.binary()).view(pa.utf8())
    for column in (never, no_text):
        pq.write_table(pa.table({"prompt": column}), tmp_path / "a.parquet")
        with pytest.raises(ConfigError, match=r"a\.parquet, rows 1 to 3; expected a file that pyarrow reads"):
            list(read_rows(str(tmp_path / "a.parquet"), ("prompt",)))
