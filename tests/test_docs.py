"""Documents name only what exists: links, files, modules, classes, config groups, keys of configs."""

import builtins
import inspect
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cod_lightning.commands.phase import WarmStart
from cod_lightning.commands.shipped import CLASS_KEYS
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.modules import GRPOModule
from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("cod_lightning", "datamodules", "modules", "callbacks", "configs", "tests", "docs", "examples")
GROUPS = sorted(folder.name for folder in (ROOT / "configs").iterdir() if folder.is_dir())
NAMED = sorted(CLASS_KEYS.keys() - set(GROUPS))
"""Short names of keys whose values are classes."""
RESULTS = ROOT / "docs" / "results"
"""Pages of measurements name the configs and files of the commit that was measured; only their links are checked."""
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
YAMLS = sorted((ROOT / "configs").rglob("*.yaml"))
FOREIGN = {"JasonHaggard", "RealMedConv", "GRPOTrainer", "CaptureServer"}
"""Names of other projects that no file here imports."""


@cache
def sources() -> frozenset[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(ROOT / name for name in listed.split() if (ROOT / name).is_file())


@cache
def names() -> set[str]:
    """Of classes here, of what is imported from elsewhere, and Python's own. Read by patterns: trees of all files take seconds."""
    found = set(dir(builtins)) | FOREIGN
    for text in (file.read_text() for file in sources()):
        found.update(re.findall(r"^ *class (\w+)", text, re.MULTILINE))
        for imported in re.findall(r"^ *(?:from [\w.]+ )?import (\([^)]*\)|.*)", text, re.MULTILINE):
            found.update(re.findall(r"\w+", imported))
    return found


@cache
def keys(section: str) -> set[str]:
    """First parts of the keys below `data`, `model` or `warm_start`."""
    return set(
        inspect.signature({"data": RolloutDataModule, "model": GRPOModule, "warm_start": WarmStart}[section]).parameters
    )


def defined(dotted: str) -> bool:
    """Whether a module, or a name at the top of one, is called this."""
    parts = dotted.split(".")
    if parts[0] != "cod_lightning":  # its three folders at the top are imported by its name
        return False
    for k in range(len(parts), 0, -1):
        base, rest = ROOT.joinpath(*parts[:k]).resolve(), parts[k:]
        file = next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f in sources()), None)
        if file is not None:
            return not rest or bool(re.search(rf"\b{rest[0]}\b", file.read_text()))
    return False


def stale(text: str) -> Iterator[str]:
    """What the text names and is not there; a path may be the beginning of a file's name."""
    text = re.sub(r"^```python.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for path in re.findall(rf"(?<![\w./-])((?:{'|'.join(TOPS)})/[\w./*-]*\w)", text):
        if not any(ROOT.glob(f"{path}*")):
            yield f"file {path}"
    for dotted in re.findall(r"(?<![\w./-])((?:cod_lightning|datamodules|modules|callbacks)(?:\.\w+)+)", text):
        if not defined(dotted):
            yield f"module or class {dotted}"
    for group, values in re.findall(rf"(?<![\w.])\+?({'|'.join(GROUPS)})=([a-z][a-z0-9_,]*)", text):
        for value in filter(None, values.split(",")):
            if value not in ("null", "none") and not (ROOT / "configs" / group / f"{value}.yaml").is_file():
                yield f"config {group}={value}"
    for key, value in re.findall(rf"(?<![\w.])\+?({'|'.join(NAMED)})=([a-z]\w*)", text):
        if value != "null":
            yield f"class {key}={value}"
    for group, value in re.findall(rf"--config(?:s|_path)? ({'|'.join(GROUPS)})/([a-z0-9_]+)", text):
        if not (ROOT / "configs" / group / f"{value}.yaml").is_file():
            yield f"config {group}/{value}"
    for section, key in re.findall(r"(?<![\w.])(data|model|warm_start)\.([a-z]\w*)", text):
        if key not in keys(section) | {"help"}:
            yield f"key {section}.{key}"


def classes_in(page: str) -> Iterator[str]:
    """CamelCase names in backticks that nothing here is called."""
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)):
        for name in re.findall(r"(?<![\w/-])[A-Z][a-z]+(?:[A-Z][A-Za-z]*|[a-z]*(?=\.[a-z_]+\b))", span):
            if name not in names():
                yield f"class {name}"


@each("page", PAGES)
def test_a_page_names_only_what_exists(page):
    text = page.read_text()
    assert re.findall(r"^(?:<{7}|>{7}|={7}$).*", text, re.MULTILINE) == []  # of a merge
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link).exists()] == []
    if not page.is_relative_to(RESULTS) and page.name != "CHANGELOG.md":  # which names what there was then
        assert [*stale(text), *classes_in(text)] == []


def test_every_shipped_config_is_named_on_a_page_that_is_written_by_hand():
    text = "".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL))
    named = {file: rf"(?:(?<![\w/.])|\b{file.parent.name}/){file.stem}(?![\w/]|\.py)" for file in YAMLS}
    assert [str(file.relative_to(ROOT)) for file, name in named.items() if not re.search(name, code)] == []


def test_comments_of_configs_name_only_what_exists():
    comments = {file: "\n".join(re.findall(r"#(?! @package)(.*)", file.read_text())) for file in YAMLS}
    assert {str(file.relative_to(ROOT)): found for file, text in comments.items() if (found := list(stale(text)))} == {}


@each(
    ("text", "found"),
    [
        ("see `cod_lightning/rollout/loop.py`", "file cod_lightning/rollout/loop.py"),
        ("`cod_lightning.rollout.loop.Loop`", "module or class cod_lightning.rollout.loop.Loop"),
        ("cod_lightning.lifecycles.NoProgram", "module or class cod_lightning.lifecycles.NoProgram"),
        ("`callbacks.MismatchGuard`", "module or class callbacks.MismatchGuard"),
        ("fit engine=transformers_16", "class engine=transformers_16"),
        ("context=hint_compact,nothing", "config context=nothing"),
        ("credit=task", "class credit=task"),
        ("--config experiment/nothing", "config experiment/nothing"),
        ("`model.kl_coefficient`", "key model.kl_coefficient"),
        ("`GroupListener` and `Levers`", "class GroupListener"),
    ],
)
def test_what_is_not_there_is_found(text, found):
    assert [*stale(text), *classes_in(text)] == [found]


@each("folder", ["examples/studies/robustness", "examples/studies"])
def test_the_makefile_calls_every_script_once_with_options_that_it_has(folder: str):
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if re.search(rf"{folder}/\w+\.py", line)]
    called = [re.search(rf"{folder}/(\w+\.py)", line) for line in lines]
    scripts = [one[1] for one in called if one]
    assert len(set(scripts)) == len(scripts) == len(lines)
    sources = {file.name: file.read_text() for file in (ROOT / folder).glob("*.py")}
    written = [name for name, text in sources.items() if "__main__" in text and "--out docs/results/" in text]
    tested = "".join(file.read_text() for file in (ROOT / "tests").glob("test_*.py"))
    assert not [name for name in written if name not in scripts and name.removesuffix(".py") not in tested]
    for line, script in zip(lines, scripts, strict=True):
        for option in re.findall(r"--\w+", line):
            assert re.search(rf'add_argument\(\s*"{option}"', sources[script]), f"{script} has no {option}"
