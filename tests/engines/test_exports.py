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


@pytest.mark.slow
def test_a_training_imports_engines_and_memories_as_they_are_chosen():
    imports = "import sys, cod_lightning.commands.fit, cod_lightning.commands.train; "
    imports += "from cod_lightning.datamodules import RolloutDataModule; from cod_lightning.modules import GRPOModule; "
    imports += "from cod_lightning.callbacks import Evaluation, Notes, Progress, Throughput, Transcripts, WeightSync"
    looked_at = f"{imports}; print(*sys.modules, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", looked_at], capture_output=True, text=True, check=True).stdout.split()
    chosen = ("cod_lightning.engines.", "cod_lightning.contexts.", "cod_lightning.methods.")
    found = {name.removeprefix("cod_lightning.") for name in shown if name.startswith(chosen)}
    assert found == {"engines.base", "engines.self_test", "engines.sync_proof", "contexts.base"}
