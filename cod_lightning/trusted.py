"""What a config of foreign origin may be: no larger than a config is; no class of others, since Python runs its module then, no
address, no variable of a key, no programs."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from jsonargparse import set_parsing_settings
from jsonargparse._common import parsing_settings

from cod_lightning.errors import ConfigError

OWN = ("cod_lightning",)
STRATEGIES = ("lightning.pytorch.strategies",)
"""What the shipped configs name beside our own packages."""

ADD_TRUST = "Add --trust if you trust the run as you would a program."
_TRUSTED = ContextVar("trusted", default=True)
_ADDRESSES = ("base_url", "url", "urls")
_HERE = ("127.0.0.1", "localhost", "::1")
_KEYS = ("JUDGE_API_KEY", "LEARN2ASK_JUDGE_KEY", "OPENAI_API_KEY", "VLLM_API_KEY")
"""Environment variables that hold the keys of endpoints where nothing else is said."""
_PROGRAMS = ("CodeTests", "McpWorld", "ProgramWorld", "VerifiersWorld")
"""Classes that run what the config names, or what a dataset or a policy wrote."""
_MOST_BYTES, _MOST_NODES = 2**22, 100_000
"""Of a config; nodes are counted with its aliases written out."""
_MOST_DIGITS = 1000


@contextmanager
def only_from(packages: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Let jsonargparse import nothing else that a value names, unless the command trusts the config."""
    before, token = dict(parsing_settings), _TRUSTED.set(trust)  # there is no public way back
    if not trust:
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=list(packages))
    try:
        yield
    finally:
        parsing_settings.update(before)
        _TRUSTED.reset(token)


def is_trusted() -> bool:
    """Whether configs may name classes of others, addresses and programs."""
    return _TRUSTED.get()


def read_config(path: Path) -> Any:
    """What a YAML file holds. Raises `OSError`, and what `parsed` raises."""
    with path.open("rb") as file:
        return parsed(file.read(_MOST_BYTES + 1))


def parsed(content: bytes) -> Any:
    """What the YAML says. Raises `RecursionError`, `yaml.YAMLError`, also for a key that stands twice, of which YAML would take the
    last, and `ValueError` for what is too large.
    """
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    loader = _BoundedLoader(content.decode())
    try:
        node = loader.get_single_node()
        _check(node)
        return None if node is None else loader.construct_document(node)
    except (AttributeError, LookupError) as error:  # of a tag that the value does not fit, as in !!bool maybe
        raise yaml.YAMLError(f"a value is not what its tag says ({type(error).__name__})") from error
    finally:
        loader.dispose()


class _BoundedLoader(yaml.SafeLoader):
    """Gives up while it reads: a node takes a kilobyte of memory."""

    num_nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.num_nodes += 1
        if self.num_nodes > _MOST_NODES:
            raise ValueError(f"it has more than {_MOST_NODES:,} values")
        return super().compose_node(parent, index)


def _check(node: Any) -> None:
    """Raise `yaml.YAMLError` for a key that stands twice in one mapping or is no scalar, `ValueError` for what becomes too large
    where its aliases are written out, holds itself, or is a number that Python does not write."""
    sizes: dict[int, float] = {}

    def size(one: Any) -> float:
        if id(one) not in sizes:
            sizes[id(one)] = math.inf  # until it is known: what holds itself never ends
            seen: set[str] = set()
            for key, _ in one.value if isinstance(one, yaml.MappingNode) else ():
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(problem="a key is a list or a mapping", problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
            if one.tag == "tag:yaml.org,2002:int" and len(one.value) > _MOST_DIGITS:
                raise ValueError(f"a number in it has more than {_MOST_DIGITS:,} digits")
            inner = [part for pair in one.value for part in pair] if isinstance(one, yaml.MappingNode) else one.value
            sizes[id(one)] = 1 if isinstance(one, yaml.ScalarNode) else 1 + sum(map(size, inner))
        return sizes[id(one)]

    if node is not None and size(node) > _MOST_NODES:
        raise ValueError(f"it has more than {_MOST_NODES:,} values where its aliases are written out")


def leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config behind their dotted keys, those in a list behind the list's.

    >>> list(leaves({"data": {"env": {"size": 3}, "words": ["a", "b"]}}))
    [('data.env.size', 3), ('data.words', 'a'), ('data.words', 'b')]
    """
    if isinstance(content, list):
        for one in content:
            yield from leaves(one, key)
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, content


def check_harmless(content: Any) -> None:
    """Raise `ConfigError` where a config that is not trusted (`only_from`) runs programs, or names another machine's address or a
    variable whose value is no endpoint's."""
    for key, value in () if is_trusted() else leaves(content):
        if not isinstance(value, str):
            continue
        name = key.rpartition(".")[2]
        if name in _ADDRESSES and not leads_here(value):
            refuse(key, value, "no address of another machine, where a key and texts would go")
        if name == "api_key_variable" and value not in ("", *_KEYS):
            refuse(key, value, f"one of {', '.join(_KEYS)}, since an endpoint is sent what the variable holds")
        if name == "class_path" and value.rpartition(".")[2] in _PROGRAMS:
            refuse(key, value, "nothing that runs programs")
        if key.endswith(".local.arguments"):
            refuse(key, value, "no arguments for a server, of which some run programs")


def leads_here(address: str) -> bool:
    """Whether the address is one of this machine alone."""
    try:
        return urlsplit(address).hostname in _HERE
    except ValueError:
        return False


def refuse(key: str, value: str, expected: str) -> None:
    """Raise the `ConfigError` for what a config that is not trusted may not say."""
    raise ConfigError(f"{key:.200}", f"{value:.200}", f"{expected}, since the run may come from others", ADD_TRUST)
