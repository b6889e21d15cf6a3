"""Agent programs in plain Python, which speak the chat dialect over the standard library's HTTP, and tasks for them."""

import json
import sys

HEAD = """
import json, os, sys, time, urllib.error, urllib.request

def post(task, path, body, key=None):
    url = task["base_url"].removesuffix("/v1") + path
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + (key or task["api_key"]), "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

def chat(task, messages, **more):
    status, text = post(task, "/v1/chat/completions", {"model": task["model"], "messages": messages, **more})
    assert status == 200, text
    return json.loads(text)["choices"][0]["message"]

def user(text):
    return {"role": "user", "content": text}

def answer(text, **more):
    print("a line of another library")
    print(json.dumps({"answer": text, **more}), flush=True)

"""
TWO_TURNS = (
    HEAD
    + """
for line in sys.stdin:
    task = json.loads(line)
    messages = [{"role": "system", "content": "You are terse."}, user(task["prompt"])]
    first = chat(task, messages)
    second = chat(task, [*messages, first, user("Are you sure?")])
    answer(second["content"])
"""
)


def tasks_file(folder, num_groups=6, tasks=4):
    """Questions in groups, each with the same answer."""
    path = folder / "tasks.jsonl"
    rows = [
        {"prompt": f"Task {n} of series {group}?", "answer": f"w{group}", "group": group}
        for group in range(num_groups)
        for n in range(tasks)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def program(folder, source, name="agent.py"):
    """The command of a program with this source."""
    (folder / name).write_text(source)
    return [sys.executable, "-I", "-S", str(folder / name)]
