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


def test_naming_one_engine_imports_no_other():
    looked_at = "from cod_lightning.engines import ScriptedEngine; import sys; print(*sys.modules, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", looked_at], capture_output=True, text=True, check=True).stdout.split()
    assert "cod_lightning.engines.scripted" in shown
    assert not {"vllm", "cod_lightning.engines.vllm", "cod_lightning.engines.transformers"} & set(shown)
