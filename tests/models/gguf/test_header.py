"""A file that is cut off or damaged anywhere is refused in one line, and never read past its end."""

import random

import pytest

from cod_lightning.models.gguf.architectures import config_of, named_weights
from cod_lightning.models.gguf.header import GGUFFile, Unreadable
from cod_lightning.models.gguf.tokenizer import vocabulary_of
from tests.cases import each
from tests.tiny_gguf import tiny_file

pytest.importorskip("gguf", reason="gguf is not installed")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny_file(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


def read(path):
    file = GGUFFile(path)
    config = config_of(file)
    vocabulary_of(file, config.vocab_size)
    for _, _, theirs in named_weights(file, config):
        file.tensor(theirs)


def test_a_file_that_ends_early_is_refused_wherever_it_ends(whole, tmp_path):
    path = tmp_path / "cut.gguf"
    rng = random.Random(0)
    for length in (0, 1, 3, 4, 7, 8, 23, 24, 25, *(rng.randrange(len(whole)) for _ in range(200)), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Unreadable) as refused:
            read(path)
        assert "begins with the letters GGUF" in refused.value.expected or "a whole file" in refused.value.expected


def test_a_damaged_header_is_refused_or_harmless_and_never_raises_anything_else(whole, tmp_path):
    path = tmp_path / "damaged.gguf"
    rng = random.Random(0)
    refused = 0
    header = whole.index(b"blk.1.ffn_up.weight")
    for _ in range(150):
        damaged = bytearray(whole)
        place = rng.randrange(header) if rng.random() < 0.5 else rng.randrange(2_000)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read(path)
        except Unreadable:
            refused += 1
    assert refused > 35


@each(
    ("at", "value", "said"),
    [
        (4, 1, "GGUF of version 2 or 3 in little-endian, not 1"),
        (4, 3 << 24, "not 50331648"),
        (15, 255, "1 to 4 dimensions"),
        (23, 255, "a whole file"),
    ],
)
def test_absurd_numbers_in_the_header_are_refused_at_once(at, value, said, whole, tmp_path):
    path = tmp_path / "absurd.gguf"
    size = 4 if at == 4 else 1
    path.write_bytes(whole[:at] + value.to_bytes(size, "little") + whole[at + size :])
    with pytest.raises(Unreadable) as refused:
        read(path)
    assert said in refused.value.expected


def test_tensors_at_the_same_bytes_are_refused_since_they_could_fill_the_disk(whole, tmp_path):
    path = tmp_path / "overlapping.gguf"
    path.write_bytes(whole)
    for name, place in GGUFFile(path).tensors.items():
        entry = len(name).to_bytes(8, "little") + name.encode()
        at = whole.index(entry) + len(entry) + 4 + 8 * len(place.shape) + 4
        whole = whole[:at] + bytes(8) + whole[at + 8 :]
    path.write_bytes(whole[: len(whole) // 2 + 1000])
    with pytest.raises(Unreadable) as refused:
        read(path)
    assert "tensors that share no bytes" in refused.value.expected
