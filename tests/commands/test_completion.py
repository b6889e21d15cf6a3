"""The tab key, in a real bash."""

import subprocess

import pytest

from cod_lightning.cli import main
from cod_lightning.commands.shipped import choices_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("builtins.print", lambda text, **_: printed.append(text))
        assert main(["completion"]) == 0
    return "".join(printed)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("f", ["fit"]),
        ("fit --config sm", ["smoke"]),
        ("fit env = lev", ["levers"]),
        ("fit context =", choices_of("context")),
        ("fit credit", ["credit="]),
        ("fit --model.gradient_cl", ["--model.gradient_clip_val"]),
        ("sweep --config experiment/three", ["experiment/three_worlds"]),
        ("fit --nothing", []),
    ],
)
def test_what_is_typed_is_completed(script, typed, offered, tmp_path):
    asked = f"COMP_WORDS=(cod-lightning {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); _cod_lightning"
    line = f'{script}\n{asked} 2>/dev/null; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert [word for word in done.stdout.split("\n") if word] == offered
