"""The lake for policies that see: the map of each observation is a picture, whose text alternative is the map in symbols."""

import struct
import zlib
from dataclasses import replace
from typing import Any

from cod_lightning.envs.base import SteppedInParts, Traits
from cod_lightning.envs.checks import check_unused
from cod_lightning.envs.facts import QuotingDials
from cod_lightning.envs.frozen_lake.lake import LakeParameters
from cod_lightning.envs.frozen_lake.wording import drawn
from cod_lightning.envs.frozen_lake.world import FrozenLakeObscure
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.types import Image, Observation, Text, text_of

_CELL = 16
"""Pixels of a side."""
_COLOURS = {"_": b"\xe8\xf2\xfa", "O": b"\x10\x18\x28", "G": b"\x20\xa0\x40", "P": b"\xd0\x30\x30"}
_COLOURS_IN_WORDS = "The map is a picture: safe ice is white, holes are black, the goal is green, and you are red."


class PicturedLake(WrappedWorld):
    """FrozenLake-Obscure with its map as a picture; read as text, its observations are those of the lake in sentences.

    Args:
        teacher: How good demonstrations are.
        parameters: Those of `LakeParameters`, which documents them; the protocol stays `natural`.
    """

    world: FrozenLakeObscure

    def __init__(self, teacher: QuotingDials = QuotingDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        lake = FrozenLakeObscure(teacher, **parameters)
        check_unused(LakeParameters, "in pictures", protocol=lake.parameters.protocol)
        super().__init__(lake)

    @property
    def traits(self) -> Traits:
        return replace(self.world.traits, shows_images=True)

    @property
    def rules(self) -> str:
        return f"{self.world.rules}\n\n{_COLOURS_IN_WORDS}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        text, info = self.world.reset(seed=seed, options=options)
        return self._pictured(text_of(text)), info

    def step(self, action: str) -> SteppedInParts:
        text, reward, terminated, truncated, info = self.world.step(action)
        shown = text if terminated or truncated else self._pictured(text_of(text))
        return shown, reward, terminated, truncated, info

    def _pictured(self, text: str) -> Observation:
        """The text, with a picture in place of the map in it."""
        symbols = drawn(self.world._view)
        before, _, after = text.partition(symbols)
        return Text(before), Image(_png([line.split() for line in symbols.splitlines()]), symbols), Text(after)


def _png(rows: list[list[str]]) -> bytes:
    """The cells as squares in the colours of their symbols (PNG, 8 bits a channel, no filter)."""
    lines = [b"\0" + b"".join(_COLOURS[symbol] * _CELL for symbol in row) for row in rows for _ in range(_CELL)]
    header = struct.pack(">2I5B", len(rows[0]) * _CELL, len(lines), 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(lines))), (b"IEND", b"")]
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
