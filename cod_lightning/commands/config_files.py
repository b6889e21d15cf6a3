"""Config files by name, composed by Hydra where they have a `defaults:` list, then handed to LightningCLI as plain YAML.

    fit --config quickstart credit=TaskCredit --model.lr 1e-4

becomes `fit --config /tmp/.../quickstart.yaml --model.lr 1e-4`: composition comes first, typed overrides later, and
`--print_config` shows (and reloads as) the result. A list of suites, or of other mappings, and an
environment or context of another class replace that of an earlier file whole.

Short forms are spelled out first: `env=levers`, `--env levers` and `--data.env levers` choose the shipped world, `env=shop.Shop`
and `baseline=LeaveOneOut` the class, and `env.max_turns=3`, `data.env.max_turns=3` are `--data.env.max_turns 3`.

`in_domain` among `data.suites` stands for the contents of `configs/suite/in_domain.yaml`. Such a file holds one suite, or a list of
them; a suite without a `name` has that of its file. The `env` of any suite may be the name of a shipped world, which stands for
its whole file.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.composition import composed
from cod_lightning.commands.shipped import (
    CLASS_KEYS,
    CLASS_NAME,
    choices_of,
    config_folders,
    config_names,
    files_of,
    groups,
    import_named,
)
from cod_lightning.errors import ConfigError, did_you_mean, some_of
from cod_lightning.scratch import scratch_prefix
from cod_lightning.trusted import read_config

_CLASSES = {
    "program": "program=BestOfN",
    "source": "source=Bandit",
    "replay": "replay=SignalReplay",
    "loss": "--model.loss NFT",
    "credit": "credit=TaskCredit",
    "baseline": "baseline=LeaveOneOut",
}
_GROUP_CHOICE = re.compile(r"^[+~]?[A-Za-z_][\w./@]*=.*$")
_FLAGS_WITHOUT_VALUE = ("--print_config", "--print_jobs", "--help", "-h", "--trust", "--profile", "--plots")


@dataclass(frozen=True)
class Expanded:
    """A command line in which every config is a plain file."""

    argv: list[str]
    names: tuple[str, ...]
    """Stems of the config files, as typed."""


# ---------------------------------------------------------------------- files by name


def find_config(name: str) -> Path:
    """The file that `--config NAME` means: a path, or a shipped config with or without `.yaml`."""
    return _find(name, "--config", "", config_names(), "a file")


def _find(name: str, key: str, group: str, names: Sequence[str], kind: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    stem = name.removesuffix(".yaml").removeprefix("configs/").removeprefix(group)
    for folder in config_folders():
        if (path := folder / f"{group}{stem}.yaml").is_file():
            return path
    expected = f"{kind}, or one of {some_of(names, name or 'quickstart')}"
    beside = [str(path) for path in sorted(Path(name).parent.glob("*.yaml"))] if name else []
    meant = did_you_mean(name, beside) or did_you_mean(stem, names, cutoff=0.3)
    listed = "`fit --help config` lists all." if len(names) > 12 else "Check the spelling."
    raise ConfigError(key, name or "empty", expected, f"{meant}{listed}")


def _content(path: Path, key: str, name: object) -> Any:
    try:
        return read_config(path, _check_nodes)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(key, name, "a YAML file", f"Correct it: {reason}.") from error


def _check_nodes(node: Any) -> None:
    """Refuse a key that stands twice in one mapping, of which YAML would take the last, and an anchor that holds itself."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
            _check_nodes(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_nodes(item)


# ---------------------------------------------------------------------- command lines


def expand(argv: Sequence[str]) -> Expanded:
    """Compose every `--config` file with the group choices (`env=levers`), and spell out the suites that it names."""
    import_named(" ".join(argv))
    choices, others = split_choices(spelled_out(argv))
    out: list[str] = []
    names: list[str] = []
    _typed.clear()
    composed_any = False
    read: dict[int, tuple[Path, Any, Any]] = {}
    rest = iter(others)
    for arg in rest:
        flag, _, value = arg.partition("=")
        is_value = out[-1:] and out[-1].startswith("--") and "=" not in out[-1] and out[-1] not in _FLAGS_WITHOUT_VALUE
        if re.match(r"-[A-Za-z]\w", arg) and not is_value:  # argparse would take it for -c or -h with a value
            raise ConfigError("command line", arg, f"two dashes, as in -{flag}", "Write it so.")
        if flag not in ("--config", "-c"):
            out.append(arg)
            continue
        path = find_config(value or next(rest, ""))
        names.append(path.stem)
        if all(path.parent != Path(own.name) for own in _temporary):  # those no person can correct
            _typed[str(path)] = path.read_text(errors="replace")
        content = _content(path, "--config", path)
        if not isinstance(content, dict):
            raise ConfigError(
                "--config", path, "a YAML file with keys, such as model and data", "See configs/smoke.yaml."
            )
        import_named(str(content))
        composes = "defaults" in content
        composed_any |= composes
        plain: Any = below_init_args(composed(path, choices).plain if composes else content)
        data: Any = plain.get("data") if isinstance(plain, dict) else None
        suites: Any = data.get("suites") if isinstance(data, dict) else None
        if isinstance(suites, list):
            plain = {**plain, "data": {**data, "suites": inline(suites)}}
        out += ["--config", str(path)]
        read[len(out) - 1] = path, content, plain
    later = dict(_replacing_flags(out))
    for at, (path, content, plain) in reversed(read.items()):
        kept = _without(plain, later)
        later = {**dict(_replacing(plain)), **later}
        out[at] = str(path if kept == content else temporary_config(path.name, kept))
    for choice in choices:
        if choice.lstrip("+~").startswith("hydra.") and not choice.startswith("hydra.sweeper."):
            remedy = "--trainer.default_root_dir sets the folder of a run, --out that of a sweep."
            raise ConfigError("command line", choice, "no key of Hydra's own, which only composes configs here", remedy)
    if choices and not composed_any:
        expected = "a --config with a defaults: list to apply it to"
        raise ConfigError("command line", choices[0], expected, "Name a config first.")
    return Expanded(out, tuple(names))


def _replacing_flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """As `_replacing`, of what is typed."""
    for before, arg in zip(["", *argv], argv, strict=False):
        key, is_assigned, value = arg.partition("=") if arg.startswith("--") else (before, "", arg)
        if key in ("--data.env", "--data.context") and is_assigned:
            named: Any = {"class_path": value if CLASS_NAME.fullmatch(value) else None}
            if value.endswith((".yaml", ".yml")) and Path(value).is_file():
                named = _content(Path(value), key, value)
            elif value.lstrip().startswith("{"):
                with suppress(yaml.YAMLError):  # which the parser answers
                    named = yaml.safe_load(value)
            yield from _replacing(named, key[2:])
        elif key.startswith("--") and re.match(r"\s*\[\s*\{", value):
            yield key[2:], ""


def _replacing(content: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Keys whose earlier values `jsonargparse` must not see, since it would fill from them what a later value leaves out: lists of
    mappings such as data.suites (with ""), and environment and context of another class than this."""
    if isinstance(content, dict):
        if key in ("data.env", "data.context") and content.get("class_path"):
            yield key, str(content["class_path"])
        for name, value in content.items():
            yield from _replacing(value, f"{key}.{name}".lstrip("."))
    elif isinstance(content, list) and any(isinstance(one, dict) for one in content):
        yield key, ""


def _without(content: Any, later: Mapping[str, str], key: str = "") -> Any:
    """The content without what is replaced later."""
    if not isinstance(content, dict):
        return content
    kept: dict[str, Any] = {}
    for name, value in content.items():
        below = f"{key}.{name}".lstrip(".")
        if below not in later or (isinstance(value, dict) and value.get("class_path") == later[below]):
            kept[name] = _without(value, later, below)
    return kept


def below_init_args(value: Any) -> Any:
    """The config with what stands beside a `class_path` put below its `init_args`.

    >>> below_init_args({"env": {"class_path": "radio.Radio", "max_turns": 3}})
    {'env': {'class_path': 'radio.Radio', 'init_args': {'max_turns': 3}}}
    """
    if isinstance(value, list):
        return [below_init_args(one) for one in value]
    if not isinstance(value, dict):
        return value
    value = {key: below_init_args(one) for key, one in value.items()}
    own = ("class_path", "init_args", "dict_kwargs")
    beside = {key: value.pop(key) for key in list(value) if key not in own} if "class_path" in value else {}
    return value | {"init_args": {**(value.get("init_args") or {}), **beside}} if beside else value


def spelled_out(argv: Sequence[str]) -> list[str]:
    """The command line with `GROUP=CHOICE` for what is shipped, and `--KEY=VALUE` for every other key."""
    chosen_in = groups()
    of_key = {key: group for group, key in CLASS_KEYS.items()}
    out: list[str] = []
    rest = list(argv)
    while rest:
        arg = rest.pop(0)
        name, is_assigned, value = arg.partition("=")
        key = full_key(name.removeprefix("--"))
        name = f"{'--' * name.startswith('--')}{key}"
        arg = f"{name}{is_assigned}{value}"
        group = key if key in CLASS_KEYS else of_key.get(key)
        has_value = is_assigned or (
            name.startswith("-") and name not in _FLAGS_WITHOUT_VALUE and rest[:1] and rest[0][:2] != "--"
        )
        if not is_assigned and has_value:
            value = rest.pop(0)
        if has_value and group is not None:
            out.append(_choice(group, value, name))
        elif name.startswith("-") or not is_assigned:
            out += [arg] if is_assigned or not has_value else [arg, value]
        else:
            own = re.fullmatch(r"[A-Za-z_][\w.]*", name) and name not in chosen_in and not name.startswith("hydra.")
            out.append(f"--{arg}" if own else arg)
    return out


def full_key(key: str) -> str:
    """The key with the name of a class's group spelled out.

    >>> full_key("env.max_turns")
    'data.env.max_turns'
    """
    group, dot, rest = key.partition(".")
    return f"{CLASS_KEYS[group]}.{rest}" if dot and group in CLASS_KEYS else key


def refuse_python_file(key: str, value: str) -> None:
    """Raise `ConfigError` for a file of code where a class is to be named: with the path of its last class."""
    if (path := Path(value)).suffix == ".py" and path.is_file():
        folders = [] if path.is_absolute() else path.parent.parts
        classes = re.findall(r"^class (\w+)", path.read_text(errors="replace"), re.MULTILINE)
        named = ".".join([*folders, path.stem, *(classes[-1:] or ["CLASS"])])
        raise ConfigError(key, value, f"a class path, such as {named}", "Name the class.")


def _choice(group: str, value: str, name: str) -> str:
    refuse_python_file(name, value)
    shipped = choices_of(group)
    if value in shipped:
        return f"{group}={value}"
    if (
        ("." in value and not value.endswith((".yaml", ".yml")))
        or value == "null"
        or value[:1] in ("{", "[")
        or Path(value).is_file()
        or f"{group}/{value}" in shipped
        or (group != "env" and CLASS_NAME.fullmatch(value))  # one of those is found by its path alone
    ):
        return f"--{CLASS_KEYS[group]}={value}"
    if not shipped:
        meant = f"Did you mean method={value}? " if value in choices_of("method") else ""
        listed = f"`fit --help {CLASS_KEYS[group]}` lists them; groups of files are {', '.join(sorted(groups()))}."
        raise ConfigError(name, value or "empty", f"a class by its name, as in {_CLASSES[group]}", f"{meant}{listed}")
    expected = f"one of {some_of(shipped, value, most=20)}, a YAML file or a class path"
    listed = "See `worlds`." if group == "env" else "Check the spelling."
    raise ConfigError(name, value or "empty", expected, f"{did_you_mean(value, shipped)}{listed}")


def line_of(key: str) -> str:
    """The file of this command line that sets the key, as `FILE:LINE`; empty where none does."""
    for name, text in reversed(_typed.items()):
        if number := _line(yaml.compose(text, yaml.SafeLoader), key.split(".")):
            return f"{name}:{number}"
    return ""


def _line(node: Any, parts: list[str]) -> int:
    """Where the mapping has that key, from 1 on; 0 where it has not. `init_args` need not be among its parts."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == "init_args" != parts[0]:
            if found := _line(value, parts):
                return found
        elif key.value == parts[0]:
            return _line(value, parts[1:]) if len(parts) > 1 else key.start_mark.line + 1
    return 0


def split_choices(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Group choices, and everything else: `a=b` behind a flag is that flag's value (`--ckpt_path epoch=3.ckpt`)."""
    choices: list[str] = []
    others: list[str] = []
    for before, arg in zip(["", *argv], argv, strict=False):
        is_flag = before == "-c" or (before.startswith("--") and "=" not in before)
        is_value = is_flag and before not in _FLAGS_WITHOUT_VALUE
        (choices if _GROUP_CHOICE.match(arg) and not is_value else others).append(arg)
    return choices, others


def chosen(argv: Sequence[str], flags: Sequence[str] = ("--suites", "--data.suites")) -> list[str]:
    """The command line with `--suites '[in_domain, mine.yaml]'` as a config of its own, which replaces earlier suites.

    Names may stand without brackets. `--data.suites` may also hold suites that are spelled out, and null or [] for none.
    """
    out: list[str] = []
    rest = iter(argv)
    for arg in rest:
        flag, is_assigned, value = arg.partition("=")
        if flag not in flags:
            out.append(arg)
            continue
        typed = value if is_assigned else next(rest, "")
        try:
            named = yaml.safe_load(typed)
        except yaml.YAMLError:
            named = typed
        names = [name.strip() for name in named.split(",")] if isinstance(named, str) else named
        if flag != flags[0] and (not names or (isinstance(names, list) and any(isinstance(n, dict) for n in names))):
            out.append(f"{flag}={typed}")
            continue
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            remedy = f"Write --suites '[{choices_of('suite')[0]}]', for example."
            raise ConfigError(flag, named, "names of suites or of YAML files", remedy)
        out += ["--config", str(temporary_config("suites.yaml", {"data": {"suites": inline(names, flag)}}))]
    return out


# ---------------------------------------------------------------------- suites


def inline(suites: Sequence[Any], key: str = "data.suites") -> list[Any]:
    """The list with every name of a file replaced by its suites, and every name of a shipped world by what its file says."""
    return [
        each
        for suite in suites
        for each in (read_suites(suite, key) if isinstance(suite, str) else [_spelled_out(suite)])
    ]


def _spelled_out(suite: Any) -> Any:
    env = suite.get("env") if isinstance(suite, dict) else None
    file = files_of("env").get(env) if isinstance(env, str) else None
    return suite if file is None else {**suite, "env": yaml.safe_load(file.read_text())}


def read_suites(name: str, key: str = "--suites") -> list[dict[str, Any]]:
    """The suites of a file, by its shipped name or its path, as plain values that `data.suites` takes."""
    path = _find(name, key, "suite/", choices_of("suite"), "a YAML file")
    content = _content(path, key, name)
    suites = content if isinstance(content, list) else [content]
    if not suites or not all(isinstance(suite, dict) for suite in suites):
        raise ConfigError(key, name, "a file with one suite or a list of suites", f"Look into {path}.")
    return [{"name": path.stem, **suite, **_world(suite.get("env"), path)} for suite in suites]


def _world(env: Any, path: Path) -> dict[str, Any]:
    """The suite's world spelled out, where it is a name."""
    if not isinstance(env, str):
        return {}
    if (file := files_of("env").get(env)) is not None:
        return {"env": yaml.safe_load(file.read_text())}
    raise ConfigError(f"env in {path}", env, "the name of a shipped world", "See `worlds`.")


_typed: dict[str, str] = {}
"""Config files of the command line by name, with their text: a parser may have gone to another folder."""
_temporary: list["tempfile.TemporaryDirectory[str]"] = []


def temporary_config(name: str, content: object) -> Path:
    """The content as a YAML file of that name in a temporary folder that lives as long as the process."""
    _temporary.append(tempfile.TemporaryDirectory(prefix=scratch_prefix("config")))
    target = Path(_temporary[-1].name) / name
    target.write_text(yaml.safe_dump(content, sort_keys=False))
    return target
