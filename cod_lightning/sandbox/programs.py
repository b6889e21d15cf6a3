"""A job that is a Python program: the request is its source, its standard input is what the sandbox was given."""

import sys
from types import ModuleType

from cod_lightning.sandbox.template import SandboxJob


def program() -> SandboxJob:
    """Runs the source as `python program.py` would."""

    def run(request: bytes) -> None:
        sys.argv[:] = ["program.py"]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(request.decode(), "program.py", "exec"), main.__dict__)

    return run
