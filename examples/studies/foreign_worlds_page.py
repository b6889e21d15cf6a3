"""Two sections of the page of `foreign_worlds.py`: faults of remote environments, and what is played end to end."""

import json
from pathlib import Path

from cod_lightning.markdown import table

COMMAND = "PYTHONPATH=. python tests/soak/{name}.py --out docs/results/{name}.json"
OPENENV = {
    "no fault": "none",
    "closed": "the server closes the socket",
    "slow": "it does not answer",
    "frame": "it answers what is no JSON",
    "type": "observation, reward or done of a wrong type, or a reward out of range",
    "error": "it answers with an error",
    "dead server": "the server is dead",
}
PROGRAMS = {
    "none": "none",
    "half": "the program closes the connection in the middle of a request",
    "unread": "it closes it before the response",
    "garbage": "it sends what is no HTTP",
    "late": "it asks when its task is over",
    "refused": "its request has fields of wrong types; another key",
    "slow": "it does not answer",
    "frame": "it prints what is no JSON, and ends",
    "flood": "it prints without end",
    "killed": "it is killed",
    "type": "its answer has a wrong type",
    "engine": "the engine fails while it waits",
}


def fault_lines(folder: Path) -> list[str]:
    """The section on faults, from the counts of `openenv_faults.py` and `program_faults.py` in the folder."""
    files = [folder / f"{name}_faults.json" for name in ("openenv", "program")]
    if not all(file.exists() for file in files):
        return []
    openenv, programs = (json.loads(file.read_text()) for file in files)
    of = {
        "OpenEnv server": (OPENENV, openenv),
        "agent program": (PROGRAMS, programs | {"counted": programs["counted"]["agent program"]}),
        "worker of verifiers": (PROGRAMS, programs | {"counted": programs["counted"]["verifiers"]}),
    }
    ended: dict[str, list[str]] = {}
    hangs, planted = 0, 0
    for where, (kinds, found) in of.items():
        each, ends = found["lifecycles of each"], []
        for kind, names in found["counted"].items():
            hangs += each - sum(names.values())
            planted += each * (kinds[kind] != "none")
            how = ", ".join(f"`{name}`" if name != "none" else "no failure" for name in names)
            ends += [f"{kinds[kind]}: {how}"] if kinds[kind] != "none" else []
        ended.setdefault("; ".join(ends), []).append(f"{where} ({each:,} lifecycles of each)")
    cells = [["; ".join(where), ends] for ends, where in ended.items()]
    return [
        "## Faults",
        f"`{COMMAND.format(name='openenv_faults')}` and `{COMMAND.format(name='program_faults')}` plant faults in an OpenEnv "
        "server, in agent programs and in a stand-in for verifiers' worker, by plan, and count how each lifecycle ends; they fail "
        "where one is lost or counted otherwise than planned.",
        table(["where", "faults, and how they ended"], cells),
        f"{planted:,} faults; hangs, that is lifecycles that did not end: {hangs}. What does not answer is ended after its time: "
        f"{openenv['timeout_s']:g} s in the first, {programs['timeout_s of slow ones']:g} s in the others.",
    ]
