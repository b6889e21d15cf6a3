"""Reading results needs no torch: the table prints at once."""

import subprocess
import sys

import pytest

NAMES = ("outcomes", "intervals", "suite", "figures", "schema", "results", "wording", "table")


@pytest.mark.slow
def test_only_the_metrics_need_torch() -> None:
    imports = "; ".join(f"import cod_lightning.evaluation.{name}" for name in NAMES)
    check = "import sys; assert not {'torch', 'lightning', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", f"{imports}; {check}"], check=True)
