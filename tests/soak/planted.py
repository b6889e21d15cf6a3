"""Plants each bug of `planted.yaml` in a copy of the project, runs the tests that are to catch it, and prints what was caught.

    PYTHONPATH=. python tests/soak/planted.py [--only TEXT] [--share 2/4] [--out docs/results/planted.json]

With `--out` all are planted, and the numbers written with the commit: per part of the project, bugs caught and planted. Tests run
in children of a process that has imported the libraries. Where a file was moved, its text is searched for, and of a file of tests
its name.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PARTS = "cod_lightning", "callbacks", "datamodules", "modules"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="Bugs whose file or tests hold this text.")
    parser.add_argument("--share", default="1/1", help="The second of four shares of them: 2/4.")
    parser.add_argument("--out", type=Path, help="The JSON file; none with --only or --share.")
    options = parser.parse_args()
    if options.out and (options.only or options.share != "1/1"):
        parser.error("--out counts all bugs, without --only and --share")
    out, commit = options.out and options.out.absolute(), _commit()
    which, of = map(int, options.share.split("/"))
    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    bugs = [(tests, *bug) for tests, bugs in table.items() for bug in bugs if options.only in tests + bug[0]]
    bugs = bugs[len(bugs) * (which - 1) // of : len(bugs) * which // of]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        there = _copied(Path(folder))
        os.chdir(there)
        sys.path.insert(0, str(there))
        import lightning.pytorch.cli  # noqa: F401
        import torch
        import transformers  # noqa: F401

        torch.set_num_threads(1)
        for tests in dict.fromkeys(tests for tests, *_ in bugs):
            assert not _fails(tests), f"{tests} fail without a bug"
        missed = [bug for bug in bugs if not _caught(there, *bug)]
    if out:
        planted, lost = (Counter(_part(name) for _, name, *_ in some) for some in (bugs, missed))
        parts = {part: {"caught": planted[part] - lost[part], "planted": planted[part]} for part in sorted(planted)}
        found = {"commit": commit, "caught": len(bugs) - len(missed), "planted": len(bugs), "parts": parts}
        out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(bugs) - len(missed)} of {len(bugs)} caught")
    return 1 if missed else 0


def _commit() -> str:
    """What is copied: the commit, with "-dirty" where the working tree differs."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    return subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _part(name: str) -> str:
    """The folder of the project that a file is in: credit, callbacks."""
    return Path(name.removeprefix("cod_lightning/")).parts[0]


def _copied(there: Path) -> Path:
    """What git tracks and what it does not ignore, in that folder."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, there / name, follow_symlinks=False)
    return there


def _caught(there: Path, tests: str, name: str, before: str, after: str) -> bool:
    """Whether a test fails with the bug; a text that is gone counts as missed."""
    every = [there / name, *(path for part in PARTS for path in sorted((there / part).rglob("*.py")))]
    file = next((path for path in every if path.exists() and before in path.read_text()), None)
    found = "gone"
    if file is not None:
        text = file.read_text()
        file.write_text(text.replace(before, after, 1))
        found = "caught" if _fails(tests) else "missed"
        file.write_text(text)
    print(f"{found:6s} {name}: {before!r} -> {after!r}", flush=True)
    return found == "caught"


def _fails(tests: str) -> bool:
    """Whether any of the tests fails, in a child of this process."""
    child = os.fork()
    if not child:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        sys.dont_write_bytecode = True
        rewritten = "ignore::pytest.PytestAssertRewriteWarning"
        plain = ["-qx", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout", "120", "-W", rewritten]
        files = [
            [name] if Path(name).exists() else map(str, Path("tests").rglob(Path(name).name)) for name in tests.split()
        ]
        os._exit(int(pytest.main([*plain, *chain.from_iterable(files)])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


if __name__ == "__main__":
    sys.exit(main())
