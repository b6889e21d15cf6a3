"""The OpenEnv server of the guide to environments of others, or another one, on the loopback."""

import socket
import subprocess
import sys
import time
from pathlib import Path

SOURCE = (Path(__file__).parents[1] / "examples" / "protocols" / "numbers_server.py").read_text()


class Served:
    """A server in a process of its own."""

    def __init__(self, folder, source=SOURCE, port=None, name="numbers_server.py"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = port or free.getsockname()[1]
        (folder / name).write_text(source)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([sys.executable, name, str(self.port)], cwd=folder)
        for _ in range(1800):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.1)
        self.kill()
        raise AssertionError("the server did not start")

    def kill(self):
        self.process.kill()
        self.process.wait()
