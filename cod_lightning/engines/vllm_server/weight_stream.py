"""Weights that go by once, bucket by bucket, to any number of readers; no rank holds a second copy of all of them."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.errors import EngineFailure

BUCKET_BYTES = 2**28
Bucket = list[tuple[str, Tensor]]
Described = tuple[str, torch.dtype, tuple[int, ...]]
"""Name, dtype and shape of a tensor."""
Fail = Callable[[EngineFailure], None]


def described(parts: Iterable[Bucket]) -> list[Described]:
    """What the parts hold, in their order."""
    return [(name, tensor.dtype, tuple(tensor.shape)) for part in parts for name, tensor in part]


def in_buckets(parts: Iterable[Bucket], layout: Sequence[Described], size: int) -> Iterator[Bucket]:
    """The parts in a row, in buckets of `size` bytes, of which each has a part more at most.

    Raises `EngineFailure` for a tensor that is not the one in the layout that receivers have, before its bucket goes out.
    """
    expected, bucket, num_bytes = iter(layout), Bucket(), 0
    for part in parts:
        for name, tensor in part:
            found, wanted = (name, tensor.dtype, tuple(tensor.shape)), next(expected, None)
            if found != wanted:
                raise EngineFailure(f"weight sync gave {in_words(found)}; servers were sent {in_words(wanted)}")
            bucket.append((name, tensor))
            num_bytes += tensor.nbytes
        if num_bytes >= size:
            yield bucket
            bucket, num_bytes = Bucket(), 0
    if (missing := next(expected, None)) is not None:
        raise EngineFailure(f"weight sync left out {missing[0]}")
    if bucket:
        yield bucket


class Reader:
    """Reads all weights in a thread of its own. One that fails, or stands still, is left behind by the others.

    Args:
        name: Of what it reads for, in messages.
        read: Given the weights one by one. What it raises is the failure.
        stall_s: Most time for one bucket, while the other readers wait.
        end_s: Most time to end after the last one.
    """

    def __init__(
        self, name: str, read: Callable[[Iterable[tuple[str, Tensor]]], None], *, stall_s: float, end_s: float
    ) -> None:
        self.name, self._read, self._stall_s, self._end_s = name, read, stall_s, end_s
        self._changed = threading.Condition()
        self._bucket: Bucket | None = None
        """What it has been offered and not begun with; an empty one is the end."""
        self._offered_at = 0.0
        self._over = False
        self.failure: EngineFailure | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"weights for {self.name}", daemon=True).start()

    def offer(self, bucket: Bucket) -> None:
        """Its next one, once it has begun with the one before."""
        with self._changed:
            left_s = self._offered_at + self._stall_s - time.monotonic()
            self._await(lambda: self._bucket is None, left_s, f"stood still for {self._stall_s:g} s")
            if not self._over and self.failure is None:
                self._bucket, self._offered_at = bucket, time.monotonic()
                self._changed.notify_all()

    def end(self) -> EngineFailure | None:
        """Wait until it has read the last one; its failure, where it has one."""
        with self._changed:
            self._await(
                lambda: False, self._end_s, f"did not end within {self._end_s:g} s (data.engine.sync_timeout_s)"
            )
            return self.failure

    def fail(self, failure: EngineFailure) -> None:
        """Read no further; of several failures the first counts."""
        with self._changed:
            self.failure, self._bucket = self.failure or failure, None
            self._changed.notify_all()

    def _await(self, ready: Callable[[], bool], limit_s: float, otherwise: str) -> None:
        def settled() -> bool:
            return self._over or self.failure is not None or ready()

        if not self._changed.wait_for(settled, max(0.0, limit_s)):
            self.fail(ServerLost(f"{self.name} {otherwise} while it was sent weights"))

    def _run(self) -> None:
        try:
            self._read(self._weights())
        except EngineFailure as failure:
            self.fail(failure)
        except Exception as error:  # of vLLM, torch or NCCL
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.fail(EngineFailure(f"{self.name} was not sent the weights ({reason[:300]})"))
        with self._changed:
            self._over, self._bucket = True, None
            self._changed.notify_all()

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._bucket is not None or self.failure is not None)
                if self.failure is not None:
                    raise self.failure
                bucket, self._bucket = self._bucket, None
                self._changed.notify_all()
            if not bucket:
                return
            for name, tensor in bucket:
                if tensor.is_cuda:  # its memory is not given to the next bucket before this thread's stream has read it
                    tensor.record_stream(torch.cuda.current_stream(tensor.device))
                yield name, tensor


def pass_by(buckets: Iterable[Bucket], readers: Sequence[Reader]) -> None:
    """Every bucket to all readers. Where ranks put tensors together, all of them call it, also without readers."""
    try:
        for bucket in buckets:
            if readers and bucket[0][1].is_cuda:
                torch.cuda.current_stream(bucket[0][1].device).synchronize()  # readers have streams of their own
            for reader in readers:
                reader.offer(bucket)
    except BaseException:
        for reader in readers:
            reader.fail(EngineFailure("the weights ended before the last one"))
        raise
    for reader in readers:
        reader.offer([])


def in_words(one: tuple[str, Any, tuple[int, ...]] | None) -> str:
    """For messages.

    >>> in_words(("model.norm.weight", torch.bfloat16, (8,)))
    'model.norm.weight (bfloat16 [8])'
    """
    return "none" if one is None else f"{one[0]} ({str(one[1]).removeprefix('torch.')} {list(one[2])})"
