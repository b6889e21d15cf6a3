"""The lake as a picture."""

import struct
import zlib

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Variants, beside
from cod_lightning.envs.frozen_lake import PicturedLake
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.types import Image, Split

COLOURS = {"_": (232, 242, 250), "O": (16, 24, 40), "G": (32, 160, 64), "P": (208, 48, 48)}


def pixels(png):
    """Rows of (red, green, blue), from the definition of the format; checksums hold."""
    at, found = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + data),)
        found[kind] = data
        at += 12 + size
    width, height, depth, colour, *_ = struct.unpack(">2I5B", found[b"IHDR"])
    assert (depth, colour, list(found)[-1]) == (8, 2, b"IEND")
    raw = zlib.decompress(found[b"IDAT"])
    assert len(raw) == height * (1 + 3 * width)
    lines = [raw[y * (1 + 3 * width) :][: 1 + 3 * width] for y in range(height)]
    assert {line[0] for line in lines} == {0}
    return [[tuple(line[1 + 3 * x : 4 + 3 * x]) for x in range(width)] for line in lines]


def test_each_cell_of_the_map_is_a_square_of_its_symbols_colour():
    world = PicturedLake()
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    for task in pack.tasks:
        (_, image, _), _ = world.reset(options={"task": task})
        assert isinstance(image, Image)
        symbols = [line.split() for line in image.alternative.splitlines()]
        expected = [[COLOURS[row[x // 16]] for x in range(16 * len(row))] for row in symbols for _ in range(16)]
        assert pixels(image.png) == expected


def test_the_feedback_is_text_and_the_picture_moves():
    world = PicturedLake()
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    shown, _ = world.reset(options={"task": pack.tasks[0]})
    seen = {shown[1].png}
    for code in (1, 2, 3, 4) * 2:
        shown, _, terminated, truncated, _ = world.step(f"<answer>Direction {code}</answer>")
        if terminated or truncated:
            break
        seen.add(shown[1].png)
    assert isinstance(shown, str)
    assert len(seen) > 1


@pytest.mark.slow
def test_it_keeps_the_contract_of_an_environment():
    world = PicturedLake(size_min=3, size_max=3)
    verdicts = list(check_world(world, HintContext(), num_packs=2, pack_size=3))
    assert {one.rule: one.broken for one in verdicts if one.broken} == {}
    assert len(verdicts) > 9
    assert beside(world, Variants).without_world_memory() is world
