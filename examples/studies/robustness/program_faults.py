"""So many lifecycles of each fault of an agent program and of a worker of verifiers: slow, dead, wrong types, closed connections.

    PYTHONPATH=. python examples/studies/robustness/program_faults.py [--lifecycles 48] [--out docs/results/program_faults.json]

Raises where a lifecycle is lost, counted twice, or counted under another name.

The worker is a stand-in which speaks the worker's lines and the token route: the real one cannot send what a broken one sends.
Every task's text says which fault is committed. A fault of a request (a connection that is closed, no HTTP, a key that has
ended) costs nothing, since the program goes on.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from cod_lightning.contexts import HintContext
from cod_lightning.engines.base import Request
from cod_lightning.envs.dataset import ExactMatch
from cod_lightning.envs.programs import ProgramWorld, VerifiersWorld
from cod_lightning.envs.programs.verifiers_world import VerifiersTask
from cod_lightning.envs.question_world import QuestionTask
from cod_lightning.errors import EngineFailure
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Pack, Split, Task
from tests.agent_programs import HEAD, program, tasks_file
from tests.real_templates import QWEN3, bpe_tokenizer
from tests.stubs import FunctionEngine

SIBLINGS = 4
PROCESSES = 64
TIMEOUT_S = 4.0
"""Where a program is slow; elsewhere nothing but the machine is."""
FAULTS = {
    "none": "none",
    "half": "none",
    "unread": "none",
    "garbage": "none",
    "late": "none",
    "refused": "none",
    "slow": "WorldHung",
    "frame": "WorldDied",
    "flood": "WorldDied",
    "killed": "WorldDied",
    "type": "EnvironmentFailure",
    "engine": "EngineFailure",
}
"""What the program does, or what happens to it, and the name under which its lifecycle has to be counted."""
COMMON = f"""
import socket, threading

def commit(fault, task, path, body):
    \"\"\"What is done before the task's own request.\"\"\"
    def connected():
        return socket.create_connection(("127.0.0.1", int(task["base_url"].split(":")[2].split("/")[0])))
    data = json.dumps(body).encode()
    head = f"POST {{path}} HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {{task['api_key']}}\\r\\n"
    head += f"Content-Length: {{len(data)}}\\r\\n\\r\\n"
    if fault == "half":  # the connection is closed in the middle of a request
        with connected() as line:
            line.sendall(head.encode() + data[:10])
    elif fault == "unread":  # it is closed before the response
        with connected() as line:
            line.sendall(head.encode() + data)
    elif fault == "garbage":
        with connected() as line:
            line.sendall(b"\\x00\\xff no HTTP\\r\\n\\r\\n")
            line.recv(1000)
    elif fault == "late":  # another thread asks when the task is over
        threading.Thread(target=lambda: (time.sleep(0.05), post(task, path, body)), daemon=True).start()
    elif fault == "refused":
        assert post(task, path, {{"messages": 3, "token_ids": "x"}})[0] == 400
        assert post(task, path, body, "another key")[0] == 401
    elif fault == "slow":
        time.sleep(3600)
    elif fault == "frame":
        print("\\x00 no JSON {{")
        sys.exit(0)
    elif fault == "flood":
        print("x" * {17 * 2**20})
    elif fault == "killed":
        os.kill(os.getpid(), 9)
"""
AGENT = (
    HEAD
    + COMMON
    + """
for line in sys.stdin:
    task = json.loads(line)
    fault, number = task["prompt"].split()
    messages = [user(task["prompt"])]
    commit(fault, task, "/v1/chat/completions", {"messages": messages})
    said = chat(task, messages)["content"]
    if fault == "type":
        print(json.dumps(({"answer": [said]}, {"answer": None}, {"answer": "w0", "feedback": 3})[int(number) % 3]), flush=True)
    else:
        answer(said)
"""
)
WORKER = (
    HEAD
    + COMMON
    + """
for line in sys.stdin:
    task = json.loads(line)
    if "list" in task:
        print(json.dumps({"tasks": [{"prompt": "none 0"}]}), flush=True)
        continue
    fault, number = task["task"]["prompt"].split()
    body = {"token_ids": [40, 41, 42]}
    commit(fault, task, "/inference/v1/generate", body)
    status, text = post(task, "/inference/v1/generate", body)
    found = {"reward": 1.0, "feedback": "seen", "shown": [task["task"]["prompt"]]}
    if status != 200:
        found = {"error": f"the policy answered with {status}"}
    if fault == "type":
        found = ({**found, "reward": float("nan")}, {**found, "reward": 1e9}, {"error": "TypeError: no reward"})[int(number) % 3]
    print(json.dumps(found), flush=True)
"""
)


def worlds(folder: Path) -> dict[str, ProgramWorld | VerifiersWorld]:
    """A world of agent programs, and one of verifiers whose Python is the stand-in."""
    worker = folder / "worker.py"
    worker.write_text(f"#!{sys.executable} -IS\n{WORKER}")
    worker.chmod(0o755)
    bounds: dict[str, Any] = {"num_processes": PROCESSES, "max_turns": 4}
    command = program(folder, AGENT)
    return {
        "agent program": ProgramWorld(command, str(tasks_file(folder)), ExactMatch(), reads_on=True, **bounds),
        "verifiers": VerifiersWorld({"taskset": {"id": "faults"}}, "none", str(worker), **bounds),
    }


def pack(name: str, number: int, fault: str) -> Pack:
    """Two tasks; the fault is committed in the first, or, in every second pack, in the second."""
    texts = [f"none {number}", f"{fault} {number}"][:: 1 if number % 2 else -1]
    tasks = tuple(
        Task(
            id=str(n),
            seed=number,
            spec=VerifiersTask(data=json.dumps({"prompt": text}))
            if name == "verifiers"
            else QuestionTask(question=text, key='"w0"'),
        )
        for n, text in enumerate(texts)
    )
    return Pack(id=f"{name}/{fault}/{number}", split=Split.TRAIN, world_seed=number, tasks=tasks)


def play(folder: Path, lifecycles: int) -> dict[str, dict[str, dict[str, int]]]:
    """So many lifecycles of each fault; by world and fault, how they are counted. Raises where tokens drift."""
    chat = Chat(bpe_tokenizer(QWEN3))

    def said(request: Request) -> tuple[int, ...]:
        if gone:
            raise EngineFailure("it is gone")
        return (*chat.encode("w0"), chat.stop_id)

    sampler = Sampler(engine=FunctionEngine(said, chat.stop_id), chat=chat, window=4000, max_new_tokens=50)
    counted: dict[str, dict[str, dict[str, int]]] = {}
    for name, env in worlds(folder).items():
        counted[name] = {}
        for fault in FAULTS:
            gone = fault == "engine"
            env.timeout_s = TIMEOUT_S if fault == "slow" else 600.0
            packs = [pack(name, number, fault) for number in range(lifecycles // SIBLINGS)]
            groups = run_groups(packs, SIBLINGS, Setting(env=env, mechanism=HintContext(), sampler=sampler))
            assert count_drift(groups) == 0
            lives = [life for group in groups for life in group.lifecycles]
            faults = (next((episode.fault for episode in life.episodes if episode.fault), "none") for life in lives)
            counted[name][fault] = dict(Counter(faults))
    return counted


def expected(lifecycles: int) -> dict[str, dict[str, dict[str, int]]]:
    """What `play` has to count."""
    named = {fault: {name: lifecycles} for fault, name in FAULTS.items()}
    return {"agent program": named, "verifiers": named}


def main() -> None:
    """Play, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=48)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < SIBLINGS or options.lifecycles % SIBLINGS:
        parser.error(f"--lifecycles has to be a multiple of {SIBLINGS}")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counted = play(Path(folder), options.lifecycles)
    if counted != expected(options.lifecycles):
        raise SystemExit(f"counted {counted}, planted {expected(options.lifecycles)}")
    planted = sum(
        n for of in counted.values() for fault, names in of.items() if fault != "none" for n in names.values()
    )
    record = {
        "faults planted": planted,
        "lifecycles of each": options.lifecycles,
        "counted": counted,
        "timeout_s of slow ones": TIMEOUT_S,
        "seconds": round(time.perf_counter() - begun),
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
