"""Plays an environment of verifiers, a task a line; run by the Python that has verifiers, so it imports nothing of this project.

    python verifiers_worker.py '{"env": {"taskset": {"id": "..."}}, "tokenizer": "...", "renderer": null}'

`{"list": 1000}` is answered with the tasks, `{"task": ..., "system": ..., "base_url": ..., "api_key": ..., "model": ...}` with what
came of one.
"""

import asyncio
import itertools
import json
import os
import sys

ANSWERS = sys.stdout
sys.stdout = sys.stderr  # what an environment prints is no answer
sys.path[0] = os.getcwd()  # not the folder of this file

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


async def main(settings):
    """Answer lines until there are no more."""
    env = vf.load_environment(vf.resolve_env_config(settings["env"]))
    async with env.serving():
        for number in itertools.count():
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            given = json.loads(line)
            if "list" in given:
                answer = listed(env, given["list"])
            else:
                answer = await played(env, given | {"number": number}, settings)
            print(json.dumps(answer), file=ANSWERS, flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
