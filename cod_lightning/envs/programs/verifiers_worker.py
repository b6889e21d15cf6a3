"""Plays an environment of verifiers, a task a line; run by the Python that has verifiers, so it imports nothing of this project.

    python verifiers_worker.py '{"env": {"taskset": {"id": "..."}}, "tokenizer": "...", "renderer": null}'

`{"list": 1000}` is answered with the tasks, `{"task": ..., "system": ..., "base_url": ..., "api_key": ..., "model": ...}` with what
came of one. Each task is played, and its answers are scored, in a fork of this process that ends with it: an answer which a rubric
runs as code changes no later score.
"""

import asyncio
import ctypes
import itertools
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

ANSWERS = sys.stdout
sys.stdout = sys.stderr  # what an environment prints is no answer
sys.path[0] = os.getcwd()  # not the folder of this file
DUMPABLE, SUBREAPER = 4, 36
MOST_BYTES = 2**24
"""Of an answer."""

import verifiers.v1 as vf  # noqa: E402  # pyright: ignore[reportMissingImports]


def listed(env, most):
    """The data of at most so many tasks."""
    return {"tasks": [task.data.model_dump(mode="json") for task in itertools.islice(env.taskset, most)]}


async def played(env, given, settings):
    """Reward and feedback of one task, or the errors of its episode."""
    data = given["task"]
    system = "\n\n".join(filter(None, (given["system"], data.get("system_prompt"))))
    kind = type(env.taskset).task_type()
    task = kind(kind.data_type().model_validate(data), env.taskset.config.task).with_system_prompt(system)
    key = f"COD_LIGHTNING_KEY_{given['number']}"  # read by the client, which is kept for one address and name of a key
    os.environ[key] = given["api_key"]
    client = vf.TrainClientConfig(
        base_url=given["base_url"],
        api_key_var=key,
        renderer_model_name=settings["tokenizer"],
        **({"renderer": settings["renderer"]} if settings["renderer"] else {}),
    )
    episode = await env.run_episode(task, vf.ModelContext(model=given["model"], client=client))
    del os.environ[key]
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if errors or not episode.ok:
        shown = "; ".join(f"{error.type}: {error.message}"[:300] for error in errors)
        return {"error": shown or "the episode is not ok"}
    reward = sum(trace.reward for trace in episode.traces if trace.agent.trainable)
    words = [text for trace in episode.traces for text in trace.info.values() if isinstance(text, str)]
    shown = [text for trace in episode.traces for text in put(trace.nodes)]
    return {"reward": reward, "feedback": "\n".join(words), "shown": shown}


def put(nodes):
    """What each sampled message of a trace answered: the texts since the assistant's message before it, without system messages."""
    for node in nodes:
        if node.sampled:
            texts, at = [], node.parent
            while at is not None and nodes[at].message.role != "assistant":
                message = nodes[at].message
                if message.role != "system":
                    parts = message.content if isinstance(message.content, list) else []
                    texts.append(
                        "\n".join(getattr(part, "text", "") for part in parts) if parts else message.content or ""
                    )
                at = nodes[at].parent
            yield "\n".join(reversed(texts))


async def served(env, given, settings):
    """As `played`, with what the environment has running meanwhile."""
    async with env.serving():
        return await played(env, given, settings)


def alone(env, given, settings):
    """What a fork says of the task. It gets nothing of this process but a copy, and what it leaves running is ended."""
    out, into = os.pipe()
    if not (child := os.fork()):
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)  # the next tasks come there
        os.dup2(2, ANSWERS.fileno())
        os.close(out)
        answer = {"error": "it ended early"}
        try:
            answer = asyncio.run(served(env, given, settings))
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        finally:
            with os.fdopen(into, "w") as file:
                file.write(json.dumps(answer) + "\n")
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:  # a line, since what it has started may hold the pipe
        line = file.readline(MOST_BYTES)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_orphans()
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {"error": f"the process of the task ended without an answer (exit code {code})"}


def end_orphans():
    """Kill what tasks have started and left: it is this process's from their end on (PR_SET_CHILD_SUBREAPER)."""
    with suppress(OSError):  # no Linux
        while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            for pid in map(int, children):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main(settings):
    """Answer lines until there are no more."""
    env = vf.load_environment(vf.resolve_env_config(settings["env"]))
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # a fork cannot look into this process
    for number, line in enumerate(sys.stdin):
        given = json.loads(line)
        answer = listed(env, given["list"]) if "list" in given else alone(env, given | {"number": number}, settings)
        print(json.dumps(answer), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
