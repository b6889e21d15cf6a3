"""Prints how large the project is, by part: `python tests/budgets.py`. Lines are those of Python files that git tracks."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGETS = {  # at 6ed5dd8f, aim
    "core": (38_900, 24_000),
    "envs": (25_100, 21_000),
    "commands": (5_400, 2_500),
    "longest method": (None, 200),
    "and with its prompts": (None, None),  # of NAME.py and NAME_*wording.py
    "functions that refuse": (5_003, 1_500),
    "of these, branches that do": (1_566, None),
    "tests": (67_000, 44_000),
    "studies": (None, None),  # scripts and page writers of docs/results/, in examples/ beside the tutorials' files
    "files of a reward's way": (28, 12),
    "YAML files": (272, 80),
    "words of docs": (122_000, 45_000),
    "modules of fit": (299, 130),
}
_OWN = "cod_lightning", "datamodules", "modules", "callbacks"


def main() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    files = [name for name in tracked if (ROOT / name).is_file()]
    texts = {name: (ROOT / name).read_text() for name in files if name.endswith((".py", ".md"))}
    python = {name: len(text.splitlines()) for name, text in texts.items() if name.endswith(".py")}

    def lines(*begins: str, but: tuple[str, ...] = ()) -> int:
        return sum(n for name, n in python.items() if name.startswith(begins) and not name.startswith(but or ("\0",)))

    apart = ("cod_lightning/envs/", "cod_lightning/methods/")
    methods = [
        name for name in python if name.startswith(apart[1]) and not name.endswith(("wording.py", "__init__.py"))
    ]
    found = {
        "core": lines(*(f"{name}/" for name in _OWN), but=apart),
        "envs": lines("cod_lightning/envs/"),
        "commands": lines("cod_lightning/commands/"),
        "longest method": max(n for name, n in python.items() if name.startswith(apart[1])),
        "and with its prompts": max(python[one] + lines(one.removesuffix(".py") + "_") for one in methods),
        "functions that refuse": sum(_refusing(texts[name]) for name in python if name.startswith(_OWN)),
        "of these, branches that do": sum(_branches(texts[name]) for name in python if name.startswith(_OWN)),
        "tests": lines("tests/"),
        "studies": lines("examples/studies/"),
        "files of a reward's way": len(re.findall(r"^\| `\w+/.*\.py`", texts["docs/design.md"], re.MULTILINE)),
        "YAML files": sum(name.startswith("configs/") and name.endswith(".yaml") for name in files),
        "words of docs": sum(len(text.split()) for name, text in texts.items() if name.endswith(".md")),
        "modules of fit": _imported(),
    }
    print(f"{'':28s}{'was':>8s}{'is':>8s}{'aim':>8s}")
    for part, (before, aim) in BUDGETS.items():
        numbers = ("" if number is None else f"{number:,}" for number in (before, found[part], aim))
        print(f"{part:28s}" + "".join(f"{number:>8s}" for number in numbers))


def _refusing(text: str) -> int:
    """Lines of the functions that make a `ConfigError`."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum((one.end_lineno or 0) - one.lineno + 1 for one in functions if "ConfigError(" in ast.unparse(one))


def _branches(text: str) -> int:
    """Lines of the `if` and `except` blocks in which a `ConfigError` is made, and of statements elsewhere that make one."""
    tree = ast.parse(text)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ConfigError":
            statement: ast.AST = node
            while not isinstance(statement, ast.stmt):
                statement = above[statement]
            branch = above[statement]
            first, last = (statement, statement)
            if isinstance(branch, ast.If | ast.ExceptHandler) and statement in branch.body:
                first, last = branch, branch.body[-1]
            lines |= set(range(first.lineno, (last.end_lineno or 0) + 1))
    return len(lines)


def _imported() -> int:
    """Own modules that `fit --config quickstart` imports before it trains."""
    line = (
        "import atexit, sys; from cod_lightning.cli import main; "  # --print_config exits
        f"atexit.register(lambda: print(sum(n.split('.')[0] in {_OWN} for n in sys.modules), file=sys.stderr)); "
        "main(['fit', '--config', 'quickstart', '--print_config'])"
    )
    done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True)
    return int(done.stderr.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
