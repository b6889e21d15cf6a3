"""Installs a wheel without its dependencies beside those of this interpreter, and runs it from an empty folder.

python tests/wheel_check.py dist/cod_lightning-*.whl
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(wheel: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, empty = Path(folder) / "venv", Path(folder) / "empty"
        for name in ("callbacks", "modules", "datamodules"):  # of the user, as in many a project on Lightning
            (empty / name).mkdir(parents=True)
            (empty / name / "__init__.py").write_text("raise ImportError('the user's own')\n")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        own = next(home.glob("lib/python*/site-packages"))
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--prefix", str(home), wheel]
        subprocess.run([*install, "--ignore-installed"], check=True)
        dependencies = Path(folder) / "dependencies"
        dependencies.mkdir()
        site = Path(next(p for p in sys.path if p.endswith("site-packages")))
        for entry in site.iterdir():  # everything but our own editable install
            if "cod_lightning" not in entry.name:
                (dependencies / entry.name).symlink_to(entry)
        (own / "dependencies.pth").write_text(f"{dependencies}\n")
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        watching = ["play", "--env", "levers", "--policy", "scripted"]
        module, script = [home / "bin" / "python", "-m", "cod_lightning"], [home / "bin" / "cod-lightning"]
        for program, arguments in (
            (module, ["--help"]),
            (module, ["fit", "--config", "quickstart", "--print_config"]),
            (script, ["--version"]),
            (script, ["worlds"]),
            (script, watching),
        ):
            done = subprocess.run([*program, *arguments], cwd=empty, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{arguments}: {done.stderr}"
            assert done.stdout.strip(), f"{arguments} printed nothing"
            print(f"wheel runs {program[0].name} {' '.join(arguments)}: {len(done.stdout.splitlines())} lines")
        where = [home / "bin" / "python", "-c", "import cod_lightning.modules as ours; print(ours.__file__)"]
        found = subprocess.run(where, cwd=empty, env=environment, capture_output=True, text=True, check=True).stdout
        assert str(home) in found, f"the checkout was imported, not the wheel: {found}"


if __name__ == "__main__":
    main(sys.argv[1])
