"""A package `vllm` for a folder of the path, whose server is `FakeVLLM`: started, killed and asked as the real one is."""

from pathlib import Path

SERVER = """
import argparse, os, sys, time
from tests.vllm_server import FakeVLLM
parser = argparse.ArgumentParser()
for flag in ("--model", "--host", "--port", "--max-model-len", "--dtype", "--max-lora-rank"):
    parser.add_argument(flag)
options, _ = parser.parse_known_args()
print(*sys.argv[1:], flush=True)
fake = FakeVLLM(window=int(options.max_model_len), adapter_rank=int(options.max_lora_rank or 0))
fake.die()
fake.key, fake.host, fake.port, fake.dtype = os.environ["VLLM_API_KEY"], options.host, int(options.port), options.dtype
fake.come_back()
time.sleep(600)
"""


def install(folder: Path) -> Path:
    """Write it there, with the version that this project asks for."""
    package = folder / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for one in (folder / "vllm", package.parent, package):
        (one / "__init__.py").write_text("")
    (package / "api_server.py").write_text(SERVER)
    (folder / "vllm-0.32.0.dist-info").mkdir()
    (folder / "vllm-0.32.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    return folder
