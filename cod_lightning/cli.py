"""The command line: `python -m cod_lightning fit --config quickstart`.

Nothing heavy is imported before a command needs it.
"""

import errno
import faulthandler
import importlib
import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Any

from cod_lightning import __version__
from cod_lightning.commands import COMMANDS, LIGHT, LIGHTNING, OF_METHODS
from cod_lightning.errors import CodLightningError, ConfigError, DataError, Stopped, did_you_mean

_HELP = f"""cod_lightning {__version__}: train and deploy LLMs as long-lifecycle agents.

usage: python -m cod_lightning COMMAND [--config NAME_OR_FILE ...] [GROUP=CHOICE ...] [--key value ...]

commands:
  fit          train with CoD-Train; ends with an evaluation and evaluation.json
  validate     play the validation packs, and write their lifecycles down
  test         evaluate a checkpoint (--ckpt_path) on the config's suites or on named ones (--data.suites)
  plan         what a training would hold in memory, against what a device has (--gpu_gb)
  serve        the vLLM servers that a config's training samples with, on this machine
  warm_start   the first phase of fit alone: supervised learning on scripted demonstrations
  sweep        train every combination of choices and seeds, and compare the runs in one table
  export       write a checkpoint's policy as a Hugging Face folder with a model card (--ckpt_path, --out)
  deploy       let a policy live on, task after task, with its context kept in a folder (--state)
  evolve       rewrite what agents begin with in view of packs that they played, without training (--out)
  context      log, show, revert: the context of a deployed agent
  worlds       list the shipped worlds
  check        say what breaks a rule of the contract in a world or context of your own
  play         play a pack in the terminal: you are the policy; with --ckpt_path a trained one, its context beside
  report       write one HTML file about a run, or several side by side
  doctor       name what ails a training that does not learn, from what its run recorded

  COMMAND --help              its keys; fit --help model: every key of a group, with its default
  COMMAND ... --print_config  the resolved config, which can be given to --config again

examples:
  python -m cod_lightning fit --config quickstart
  python -m cod_lightning fit --config smoke --seed_everything 2 --model.lr 5e-4
  python -m cod_lightning fit --config quickstart credit=TaskCredit
  python -m cod_lightning test --config quickstart --ckpt_path runs/quickstart/checkpoints/last.ckpt
"""


_ROOM = "Make room; a fit then goes on with --ckpt_path auto."
_RIGHTS = "Let this user read and write there, or name another."
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _ROOM),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
    errno.ENOTEMPTY: "Name another folder.",  # something was written there meanwhile
}
"""By the number of what the system refuses."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 for a mistake in what was asked for, 1 for a run that failed, 3 for a `fit` that
    learnt nothing, 128 + N after signal N."""
    if argv is None and not sys.flags.safe_path:
        sys.path.append("")  # the script `cod-lightning` finds classes in the current folder, libraries before
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"  # torch's threads would spin for milliseconds where they wait
    os.environ.setdefault("MKL_CBWR", "AUTO")  # else gradients depend on which thread is late, on a busy machine
    args = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding than UTF-8 is no failure
    try:
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        if sys.stdout is None:
            raise
        shown = select.poll()
        shown.register(sys.stdout.fileno(), 0)
        if not shown.poll(0):  # another pipe than the one that is printed to
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # its reader, such as `head`, has ended
        return 128 + signal.SIGPIPE


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if args[0] == "--version":
        print(__version__)
        return 0
    cleaned_output = _imported("terminal").cleaned_output
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # where each thread was when a library crashed
    with cleaned_output():
        return _answered(args)


def _answered(args: list[str]) -> int:
    try:
        command, rest = args[0], args[1:]
        if command not in COMMANDS:
            meant = did_you_mean(command, [*COMMANDS], cutoff=0.5)
            raise ConfigError("command", command or "empty", f"one of {', '.join(COMMANDS)}", f"{meant}See --help.")
        from cod_lightning.files import RANKS

        for name in RANKS:  # which libraries read as they are imported
            if not (rank := os.environ.get(name, "0")).isdecimal():
                raise ConfigError(name, rank or "empty", "a whole number, where it is set at all", f"Do unset {name}.")
        watching = command == "play" and any(arg.partition("=")[0] == "--ckpt_path" for arg in rest)
        if watching or command not in LIGHT:
            _imported("commands.config_files").see_checkpoints(rest)
            if sys.stderr is not None and sys.stderr.isatty():
                print(f"{command}: loading torch and Lightning, some seconds ...", file=sys.stderr, flush=True)
        module = _imported(f"commands.{COMMANDS[command]}")
        return module.run(args if command in (*LIGHTNING, *OF_METHODS) else rest)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except CodLightningError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        print(f"error: {error}. {_REMEDIES[error.errno]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before there was a run to stop
        print("Stopped by SIGINT.", file=sys.stderr)
        return 130
    except Stopped as stopped:
        if stopped.message:
            print(stopped.message, file=sys.stderr)
        return 128 + stopped.number


def _imported(name: str) -> Any:
    """The module of ours; leaves in one line where what it needs is not installed, as outside of the clone's `.venv`."""
    try:
        return importlib.import_module(f"cod_lightning.{name}")
    except ModuleNotFoundError as error:
        remedy = "In a clone: make .venv/installed, then . .venv/bin/activate."
        sys.exit(f"error: {sys.executable} has no {error.name}; expected what cod_lightning needs. {remedy}")
