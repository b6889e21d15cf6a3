"""The page of what differs from the published settings: `PYTHONPATH=. python examples/studies/as_published.py` writes it.

Our values are those that a config resolves to; theirs, with their keys, are in as_published.yaml.
"""

import inspect
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cod_lightning.commands.config_files import expand
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.modules import GRPOModule

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "as_published.md"
TABLE = yaml.safe_load((Path(__file__).with_suffix(".yaml")).read_text())
ABOUT = f"""# As published, setting for setting

After this page you know what each of our configs of the papers' runs sets as the authors do, and what differs.

`PYTHONPATH=. python examples/studies/as_published.py` writes this page, and a test holds our configs to it. Theirs are the files of
the releases of {" and ".join(f"[{name}]({url})" for name, url in TABLE["releases"].items())}, at the
commits named; *workflow* is their code. What differs as above is listed once; what is equal is in `as_published.yaml` beside that
script."""


class Row(NamedTuple):
    """A setting of ours beside theirs."""

    config: str
    key: str
    found: Any
    """What our config resolves to."""
    row: dict[str, Any]
    """As in the table."""


@cache
def rows(place: int) -> list[Row]:
    """The rows of a section, by its place in the table, with what our config resolves to."""
    section = TABLE["sections"][place]
    argv = expand(["--config", *section["config"].split()]).argv
    config = yaml.safe_load(argv[argv.index("--config") + 1])
    keys = [row.get("key", "") for row in section["rows"]]
    return [
        Row(section["config"], key, resolved(config, key) if key else None, row)
        for key, row in zip(keys, section["rows"], strict=True)
    ]


def resolved(config: dict[str, Any], key: str) -> Any:
    """The value of a key; where the config does not set it, the default of its class. Suites go by their names."""
    value: Any = config
    roots = {"data": RolloutDataModule, "model": GRPOModule}
    parts = key.split(".")
    for place, part in enumerate(parts):
        if isinstance(value, list):
            value = next(one for one in value if one["name"] == part)
        elif part in value:
            value = value[part]
        elif "class_path" in value:
            inside = value.get("init_args", {})
            value = inside[part] if part in inside else default(class_of(value["class_path"]), part)
        else:
            assert place == 1, f"{key} is no key of {config.keys()}"
            value = default(roots[parts[0]], part)
    return value


def class_of(path: str) -> type:
    """The class that a class path names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def default(kind: type, name: str) -> Any:
    """The default of a class's argument, also of one that its dataclass of parameters declares."""
    found = inspect.signature(kind).parameters
    if name in found:
        return found[name].default
    (parameters,) = (
        one for one in vars(inspect.getmodule(kind)).values() if getattr(one, "__name__", "").endswith("Parameters")
    )
    return next(field.default for field in fields(parameters) if field.name == name)


def page() -> str:
    """The page."""
    lines = ["| our key | ours | theirs | what differs |", "| --- | --- | --- | --- |"]
    for place, section in enumerate(TABLE["sections"]):
        every = rows(place)
        differing = [row for row in every if "why" in row.row]
        files = "`, `".join(section["source"].split(", "))
        equal = f"{len(every) - len(differing)} settings are theirs"
        lines += [
            f"| **{section['title']}** | `{section['config']}` | `{files}` ({section['commit']}) | {equal} |",
            *(_line(row) for row in differing if not row.row["why"].startswith("as above")),
        ]
    return "\n\n".join([ABOUT, "\n".join(lines)]) + "\n"


def _line(one: Row) -> str:
    name, ours = (f"`{one.key}`", _shown(one.found)) if one.key else ("", "")
    return f"| {name} | {ours} | {one.row['theirs']} | {one.row['why']} |"


def _shown(value: Any) -> str:
    """The value as YAML has it; a class by its name.

    >>> _shown(None), _shown("cod_lightning.contexts.HintContext"), _shown([0.9, 0.999])
    ('null', 'HintContext', '[0.9, 0.999]')
    """
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).removesuffix("...\n").strip()
    return text.rpartition(".")[2] if text.startswith("cod_lightning.") else text


if __name__ == "__main__":
    PAGE.write_text(page())
