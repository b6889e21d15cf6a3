"""Engines by name from their package."""

import subprocess
import sys

import pytest

from cod_lightning import engines


def test_every_engine_is_exported_by_name():
    for name in ("Engine", "OpenAIEngine", "ScriptedEngine", "TransformersEngine", "VLLMEngine", "VLLMServerEngine"):
        assert getattr(engines, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        engines.Nothing  # noqa: B018


def test_naming_one_engine_imports_no_other_and_scripted_play_needs_no_torch():
    imports = "from cod_lightning.engines import ScriptedEngine; import cod_lightning.rollout.player, sys"
    looked_at = f"{imports}; print(*sys.modules, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", looked_at], capture_output=True, text=True, check=True).stdout.split()
    assert "cod_lightning.engines.scripted" in shown
    assert not {"vllm", "torch", "lightning", "transformers", "cod_lightning.engines.transformers"} & set(shown)
