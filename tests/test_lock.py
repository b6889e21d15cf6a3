"""What `make` installs: the lock meets pyproject.toml, has hashes, and leaves torch to the machine."""

import json
import re
import runpy
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import each

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TIERS = {name: (ROOT / ".ci" / "lock" / f"{name}.txt").read_text() for name in ("build", "run", "test", "dev")}
FLOORS = {
    "lightning": "2.6.5",  # GHSA-w37p-236h-pfx3; two code executions in load_from_checkpoint
    "pytorch-lightning": "2.6.5",
    "jinja2": "3.1.5",
    "filelock": "3.20.2",
}
"""The last version of each package that has a known hole."""


def pins(tier):
    """Versions by name of what this platform installs."""
    lines = re.findall(r"^[a-z0-9._-]+==[^\\]+", TIERS[tier], re.MULTILINE)
    found = [Requirement(line) for line in lines]
    return {one.name: str(one.specifier)[2:] for one in found if not one.marker or one.marker.evaluate()}


LOCKED = {name: version for tier in TIERS for name, version in pins(tier).items()}


def wanted(*extras):
    """What the project asks for, with these extras of its own."""
    given = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        given += [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    own = [extra for one in given if one.name == PROJECT["name"] for extra in one.extras]
    return [one for one in given if one.name not in (PROJECT["name"], "torch")] + (wanted(*own) if own else [])


@each("name", FLOORS)
def test_versions_with_known_holes_are_neither_asked_for_nor_locked(name):
    [asked] = [one for one in wanted() if one.name == name]
    assert not asked.specifier.contains(FLOORS[name])
    assert asked.specifier.contains(LOCKED[name])


def test_the_lock_is_of_the_versions_that_pyproject_asks_for():
    for one in wanted("test", "dev"):
        assert one.specifier.contains(LOCKED[canonicalize_name(one.name)]), one


@each("tier", TIERS)
def test_every_locked_package_has_a_hash(tier):
    blocks = re.split(r"\n(?=[a-z0-9])", TIERS[tier].partition("make lock\n")[2].strip())
    assert len(blocks) >= len(pins(tier)) > 5
    assert all("--hash=sha256:" in block for block in blocks)


def test_torch_and_what_a_build_for_gpus_brings_are_left_to_the_machine_and_a_package_has_one_version():
    assert [name for name in LOCKED if re.match(r"torch$|triton|nvidia|cuda", name)] == []
    assert all(LOCKED[name] == version for tier in TIERS for name, version in pins(tier).items())


HOLE = {"id": "GHSA-1", "fix_versions": ["2.0"]}


@each(
    ("vulns", "code", "said"),
    [
        (None, 0, "NOT RUN"),
        ([{}], 0, "NOT RUN"),
        ([{"vulns": []}, {}], 0, "1 of 2 locked packages, 0 known"),
        ([{"vulns": [HOLE]}], 1, "a 1.0: GHSA-1, closed by 2.0"),
        ([{"vulns": [HOLE | {"fix_versions": []}]}], 0, "no version closes it"),
    ],
)
def test_an_audit_says_what_it_found_or_that_it_found_nothing_out(vulns, code, said, tmp_path, capsys):
    report = tmp_path / "audit.json"
    if vulns is not None:
        report.write_text(json.dumps({"dependencies": [{"name": "a", "version": "1.0"} | one for one in vulns]}))
    assert runpy.run_path(str(ROOT / ".ci" / "audit.py"))["main"](report) == code
    assert said in "".join(capsys.readouterr())
