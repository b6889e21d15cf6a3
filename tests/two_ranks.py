"""Two forked processes with a gloo group between them."""

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist


def on_two_ranks(folder: Path, act: Callable[[int], str], *, grouped: bool = True) -> list[str]:
    """What `act` returns on each of them; not `grouped`: it makes the group itself, from the environment, as under torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [_child(folder, rank, port, act, grouped) for rank in range(2)]
    for child in children:
        os.waitpid(child, 0)
    return [(folder / f"said{rank}").read_text() for rank in range(2)]


def _child(folder: Path, rank: int, port: int, act: Callable[[int], str], grouped: bool) -> int:
    child = os.fork()
    if child:
        return child
    try:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
        os.environ.update({name: str(value) for name, value in (ranks | where).items()})
        if grouped:
            dist.init_process_group("gloo")
        (folder / f"said{rank}").write_text(act(rank))
    except BaseException:
        (folder / f"said{rank}").write_text(traceback.format_exc())
    finally:
        os._exit(0)
