"""The job that grades answers to reasoning-gym's questions; it runs in a `Sandbox`.

Many of its scorers evaluate the answer as Python (`eval`, sympy's `parse_expr`). What is evaluated has to be a value or a formula:
names, attributes, imports and functions that could change the scorer, and so its own score, are refused before they run.
"""

import builtins
import dis
import json
import os
import pickle
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

REFUSED = 83
"""Exit code where the answer is a program."""
_ACTS = ("ATTR", "METHOD", "IMPORT", "STORE", "DELETE", "FUNCTION", "BUILD_CLASS", "YIELD", "AWAIT")
"""Parts of the names of instructions that a value or a formula does not have."""
_SYMPY_FUNCTIONS = frozenset({"sqrt", "cbrt", "root", "real_root"})
"""Of sympy's functions that formulas name, those that are no classes."""

_OPENING = compile("from sympy import *", "<string>", "exec")
_SYMPY_ITSELF = _OPENING.co_code, _OPENING.co_names, _OPENING.co_consts
"""Which sympy runs before each formula."""
_PARSER = "sympy.parsing"
_OWN_CODE = frozenset({*sys.stdlib_module_names, "sympy", "mpmath", "numpy"})
"""Who runs texts of its own making, such as a named tuple's; of sympy's modules the parser alone runs an answer."""


def grader(datasets: list[list[Any]]) -> Callable[[bytes], None]:
    """The job: of a pickled (level, entry, answer) it prints the score, or the name of what the scorer raised, as JSON.

    Args:
        datasets: Name, settings (JSON), seed and size of the dataset of each level.
    """
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    made = [
        reasoning_gym.create_dataset(name, seed=seed, size=size, **json.loads(settings))
        for name, settings, seed, size in datasets
    ]
    for one in made:  # scorers import and cache when they are first called
        with suppress(Exception):
            one.score_answer(str(one[0]["answer"]), one[0])
    import sympy

    formula_names = _SYMPY_FUNCTIONS | {  # numbers, functions and constants
        name
        for name, value in vars(sympy).items()
        if isinstance(value, sympy.Basic) or (isinstance(value, type) and issubclass(value, sympy.Basic))
    }
    output = sys.stdout
    sys.stdout = sys.stderr  # what a scorer prints is no score

    def grade(request: bytes) -> None:
        level, entry, answer = pickle.loads(request)  # of the trainer
        random.seed(0)
        sys.addaudithook(lambda event, arguments: _see(event, arguments, formula_names))
        try:
            found: dict[str, Any] = {"score": float(made[level].score_answer(answer, entry))}
        except Exception as error:
            found = {"raised": type(error).__name__}
        print(json.dumps(found), file=output, flush=True)

    return grade


def _see(event: str, arguments: tuple[Any, ...], formula_names: frozenset[str]) -> None:
    """End this process where a text is about to be run that is neither a value nor a formula (an audit hook: PEP 578)."""
    if event != "exec" or not isinstance(code := arguments[0], CodeType) or code.co_filename != "<string>":
        return
    caller = sys._getframe(2)  # of the hook, and of the function that calls this
    module = str(caller.f_globals.get("__name__"))
    formula = module.startswith(_PARSER)
    if formula and (code.co_code, code.co_names, code.co_consts) == _SYMPY_ITSELF:
        return
    if not formula and module.partition(".")[0] in _OWN_CODE:
        return
    if formula:
        names = formula_names | set(caller.f_locals["local_dict"])
        spaces = (caller.f_locals["global_dict"], vars(builtins))
    else:
        names, spaces = frozenset(), (caller.f_locals, caller.f_globals, vars(builtins))
    for one in dis.get_instructions(code):
        known = one.opname in ("LOAD_NAME", "LOAD_GLOBAL") and any(one.argval in space for space in spaces)
        if (known and one.argval not in names) or any(part in one.opname for part in _ACTS):
            os._exit(REFUSED)
