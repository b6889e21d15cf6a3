"""Both ends of a weight transfer as vLLM 0.32 has them, the broadcast over HTTP in place of NCCL.

The same are what is described, how tensors are packed, and that a sender waits for ever for a receiver that is gone.
"""

import base64
import itertools
import math
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from cod_lightning.engines.vllm_server.weight_nccl import NCCLTransfer
from cod_lightning.errors import EngineFailure
from tests.vllm_server import FakeVLLM


class ReceivingVLLM(FakeVLLM):
    """Receives as `NCCLWeightTransferEngine.receive_weights` does, packed."""

    def __init__(self, **options):
        super().__init__(**options)
        self.transfer = "nccl"
        self.chunks: queue.Queue[bytes] = queue.Queue()
        self.init_info: dict = {}
        self.active = False
        self.received: list[dict[str, torch.Tensor]] = []
        self.senders: set[int] = set()
        """Ranks that sent it a chunk."""
        self.chunk_bytes: list[int] = []
        self.ends: tuple[int, int] | None = None
        """Updates, and chunks of the next one, that it takes before it is gone."""
        self.gone = False
        self.num_chunks = 0
        self.released = threading.Event()
        """Not set: it stands still."""
        self.released.set()
        self.others = threading.Barrier(1)
        """Those that have to receive at the same time."""

    def answer(self, path, body):
        if path == "/init_weight_transfer_engine":
            self.init_info = body["init_info"]
        elif path == "/wire":
            self.senders.add(body["rank"])
            self.chunks.put(base64.b64decode(body["chunk"]))
            while not self.chunks.empty() and not self.gone:
                time.sleep(0.002)
            if self.gone:
                return 503, "gone"
        elif path == "/start_weight_update":
            if self.active:
                return 500, {
                    "error": {"message": "start_weight_update called while a weight update is already active."}
                }
            self.active, self.chunks, self.loading, self.num_chunks = True, queue.Queue(), {}, 0
        elif path == "/update_weights":
            self.others.wait(20)
            try:
                self._receive(**body["update_info"])
            except Exception as error:
                self.active = False
                return 500, {"error": {"message": f"{type(error).__name__}: {error}"}}
        elif path == "/finish_weight_update":
            self.active = False
            self.received.append(self.loading)
        return super().answer(path, body)

    def _receive(self, names, dtype_names, shapes):
        size, chunk, num_bytes = self.init_info["packed_buffer_size_bytes"], [], 0
        for name, dtype_name, shape in zip(names, dtype_names, shapes, strict=True):
            dtype = getattr(torch, dtype_name)
            chunk.append((name, dtype, shape, math.prod(shape) * dtype.itemsize))
            num_bytes += chunk[-1][-1]
            if num_bytes > size:
                self._load(chunk, num_bytes)
                chunk, num_bytes = [], 0
        if chunk:
            self._load(chunk, num_bytes)

    def _load(self, chunk, num_bytes):
        self.released.wait(20)
        if self.ends == (len(self.received), self.num_chunks):
            threading.Thread(target=self.die).start()
            self.gone = True
            raise RuntimeError("NCCL error")
        packed = self.chunks.get(timeout=20)
        self.num_chunks += 1
        self.chunk_bytes.append(len(packed))
        assert len(packed) == num_bytes, "the two sides cut their chunks differently"
        flat = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        parts = flat.split([size for *_, size in chunk])
        for (name, dtype, shape, _), part in zip(chunk, parts, strict=True):
            self.loading[name] = part.clone().view(dtype).view(shape)


class SendingEngine:
    """Sends as `NCCLTrainerWeightTransferEngine` does, packed."""

    def __init__(self, transfer):
        self.transfer, self.routes = transfer, transfer._routes
        self.aborted = threading.Event()
        info = transfer.init_info()
        self.size = info["packed_buffer_size_bytes"]
        del info["rank"]
        self.routes.init_weight_transfer_engine(info | {"rank_offset": 1})

    def send_weights(self):
        layout = self.routes.layout
        names, dtypes, shapes = ([one[i] for one in layout] for i in range(3))
        info = {"names": names, "dtype_names": [str(d).split(".")[-1] for d in dtypes], "shapes": [*map(list, shapes)]}
        self.routes.start_weight_update()
        pool = ThreadPoolExecutor(1)
        try:
            future = pool.submit(self.routes.update_weights, info)
            chunk, num_bytes = [], 0
            for _, tensor in itertools.chain(self.transfer._weights, [("", None)]):
                if tensor is not None:
                    chunk.append(tensor.contiguous().view(-1).view(torch.uint8))
                    num_bytes += chunk[-1].numel()
                if chunk and (tensor is None or num_bytes > self.size):
                    self._broadcast(torch.cat(chunk))
                    chunk, num_bytes = [], 0
            future.result()
        finally:
            pool.shutdown(wait=False)
        self.routes.finish_weight_update()

    def _broadcast(self, packed):
        text = base64.b64encode(packed.numpy().tobytes()).decode()
        try:
            self.routes._server.post("/wire", {"chunk": text, "rank": int(os.environ.get("RANK", 0))})
        except EngineFailure:
            self.aborted.wait()
            raise RuntimeError("NCCL error: the communicator was aborted") from None

    def shutdown(self):
        self.aborted.set()


def lay_wire(monkeypatch, bucket_bytes=2**28):
    """Let every transfer go over HTTP."""
    monkeypatch.setattr(NCCLTransfer, "check", staticmethod(lambda: None))
    monkeypatch.setattr(NCCLTransfer, "_join", lambda transfer: SendingEngine(transfer))
    for module in ("nccl_supply", "weight_nccl"):
        monkeypatch.setattr(f"cod_lightning.engines.vllm_server.{module}.BUCKET_BYTES", bucket_bytes)
