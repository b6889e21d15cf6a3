"""Runs vLLM's server and ends it with the process that started it, also when that one is killed."""

import os
import runpy
import signal
import threading


def main() -> None:
    """`python -m cod_lightning.engines.vllm_server.main ARGUMENTS`; standard input is a pipe from the parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    while os.read(0, 4096):  # ends when the other end is closed, which the kernel does for the dead
        continue
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
