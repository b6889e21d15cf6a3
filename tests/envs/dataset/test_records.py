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


def write_arrow(path, make):
    return write_table(path, make, pa.Table.from_pylist(ROWS))


def write_table(path, make, table):
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table)
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
        lambda folder: write_arrow(folder / "a.arrow", pa.ipc.new_stream),
        lambda folder: write_arrow(folder / "a.arrow", pa.ipc.new_file),
        lambda folder: write_parts(folder / "parts"),
    ],
)
def test_every_kind_of_file_gives_the_same_rows(tmp_path, write):
    assert read(write(tmp_path)) == WANTED


def saved_to_disk(folder):
    """A folder as `datasets` 4 lays it out: shards in the stream format, and the list of them."""
    folder.mkdir(parents=True)
    write_arrow(folder / "data-00000-of-00001.arrow", pa.ipc.new_stream)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_saved_dataset_is_read_by_its_list_and_a_folder_of_several_is_refused_with_their_names(tmp_path):
    assert read(saved_to_disk(tmp_path / "both" / "train")) == WANTED
    (tmp_path / "both" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(ConfigError, match=r"several \(train, test\).*both/train"):
        read(tmp_path / "both")


def test_what_the_library_itself_saves_is_read(tmp_path):
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / "both")
    rows.to_parquet(str(tmp_path / "a.parquet"))
    assert read(tmp_path / "saved") == read(tmp_path / "both" / "train") == read(tmp_path / "a.parquet") == WANTED


@each(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", b'{"prompt": "q", "answer": 1}\n{"prompt": ', r"a\.jsonl:2.*JSON object"),
        ("a.jsonl", b"\n\n[1]", r"a\.jsonl:3.*not a list"),
        ("a.jsonl", b'{"prompt": "\xff"}', r"a\.jsonl:1.*UTF-8"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1"),
        ("a.json", b'[\n{"prompt": "q"}]', r"a\.json:1.*a list is no JSON Lines"),
        ("a.parquet", b"PAR1", r"a\.parquet.*pyarrow reads"),
        ("a.arrow", b"no arrow", r"a\.arrow.*pyarrow reads"),
        ("a.csv", b"q,1", r"a\.csv.*ends with \.jsonl"),
        ("a/state.json", b'{"_data_files": ["a.arrow"]}', r"state\.json.*names in a list '_data_files'"),
        ("a/state.json", b'{"_data_files": [{"filename": 1}]}', r"state\.json.*names in a list '_data_files'"),
        (
            "a/state.json",
            b'{"_data_files": [{"filename": "gone.jsonl"}]}',
            r"gone\.jsonl.*No such file.*Correct the path",
        ),
        ("a/dataset_dict.json", b'{"splits": [1, 2]}', r"dataset_dict\.json.*names in a list 'splits'"),
        ("a/dataset_dict.json", b'{"splits": []}', r"dataset_dict\.json.*names in a list 'splits'"),
        ("a.txt/b", b"", "Correct the path|files of one kind"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path, name, content, complaint):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        read(path if path.parent == tmp_path else path.parent)


@each("write", [write_parquet, lambda path: write_arrow(path, pa.ipc.new_stream)])
def test_a_column_whose_name_is_no_text_is_refused(tmp_path, write):
    path = write(tmp_path / ("a.parquet" if write is write_parquet else "a.arrow"))
    path.write_bytes(path.read_bytes().replace(b"prompt", b"\xffrompt"))
    with pytest.raises(ConfigError, match=r"a\.(parquet|arrow).*pyarrow reads"):
        read(path)


def test_a_small_table_of_long_texts_is_read_a_few_rows_at_a_time(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["q" * 100_000]))
    table = pa.table({"prompt": texts, "answer": ["a"] * 4000})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", store_schema=False)
    write_table(tmp_path / "a.arrow", pa.ipc.new_file, table)
    for name in ("a.parquet", "a.arrow"):
        assert (tmp_path / name).stat().st_size < 250_000
        tracemalloc.start()
        assert sum(1 for _ in read_rows(str(tmp_path / name), ("prompt", "answer"))) == 4000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000_000, "of 400 million letters"


def test_an_arrow_file_whose_texts_end_before_they_begin_is_refused(tmp_path):
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.ipc.new_stream)
    content = path.read_bytes()
    ends = b"".join(n.to_bytes(4, "little") for n in range(2, 2 * len(ROWS) + 1, 2))
    assert content.count(ends) == 1
    path.write_bytes(content.replace(ends, b"\xff\xff\xff\x7f" + ends[4:]))
    with pytest.raises(ConfigError, match=r"a\.arrow.*pyarrow reads"):
        read(path)


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
