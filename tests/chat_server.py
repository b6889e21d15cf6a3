"""A chat endpoint on this machine, and a tiny policy that it serves."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.engines.base import Request
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import WarmStartModule
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Message, Role, StopReason
from tests.small_fit import quiet_trainer
from tests.word_play import sampling_from

WINDOW = 256
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}


@dataclass
class Reply:
    """One HTTP answer."""

    body: Any = ""
    """Text and bytes as they are; anything else as JSON."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    drip_s: float = 0.0
    """Seconds between two bytes of the body."""
    hang_up: bool = False
    """Close the connection without an answer."""


def said(text: str | None, reason: str | None = "stop", **message: Any) -> Reply:
    """A chat completion as the API describes it."""
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text, **message}}
    return Reply({"id": "x", "object": "chat.completion", "choices": [choice], "usage": USAGE})


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # the sixth of those who connect at once would wait for a second


class ChatServer:
    """Answers `POST /v1/chat/completions` with what a function of the request's JSON returns; remembers what it was sent."""

    def __init__(self, answer: Callable[[dict[str, Any]], Reply]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.in_flight, self.most_in_flight = 0, 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "ChatServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _reply_to(self, content: dict[str, Any], key: str | None) -> Reply:
        with self._lock:
            self.requests.append(content)
            self.keys.append(key)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = self.answer(content)
            time.sleep(reply.after_s)
            return reply
        finally:
            with self._lock:
                self.in_flight -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else what comes behind the headers waits 40 ms for their receipt

            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/chat/completions", self.path
                reply = server._reply_to(content, self.headers.get("Authorization"))
                if reply.hang_up:
                    self.close_connection = True
                    return
                text = reply.body if isinstance(reply.body, str | bytes) else json.dumps(reply.body)
                body = text.encode() if isinstance(text, str) else text
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    for part in [body] if not reply.drip_s else [bytes([b]) for b in body]:
                        time.sleep(reply.drip_s)
                        self.wfile.write(part)
                except OSError:
                    self.close_connection = True  # the client has given up

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@lru_cache(maxsize=1)
def tiny_policy() -> tuple[Any, Chat]:
    """A policy that has learnt a little of the lever world, and its chat."""
    torch.manual_seed(0)
    world, mechanism = Levers(protocol="compact"), HintContext(protocol="compact")
    data = DemonstrationDataModule(world, mechanism, num_updates=150, packs_per_update=3, num_packs=60, seed=0)
    policy = TinyPolicy(hidden_size=48, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=96, window=WINDOW)
    module = WarmStartModule(policy, lr=5e-3, warmup_updates=5)
    quiet_trainer(None).fit(module, data)
    assert module.model is not None
    return module.model.eval(), data.chat


def tiny_engine() -> TransformersEngine:
    """An engine in this process with the tiny policy's weights."""
    model, chat = tiny_policy()
    return sampling_from(model, chat.stop_ids, 0)


def tiny_server() -> ChatServer:
    """An endpoint that renders the messages with the tiny policy's own chat template and samples with our engine."""
    engine, chat, lock = tiny_engine(), tiny_policy()[1], threading.Lock()

    def answer(content: dict[str, Any]) -> Reply:
        messages = [Message(Role(m["role"]), m["content"]) for m in content["messages"]]
        with lock:
            prompt = chat.opening(messages)
            asked = Request(
                dialogue="one",
                prompt_ids=prompt,
                messages=messages,
                max_new_tokens=content["max_tokens"],
                noise_seed=content["seed"],
                temperature=content["temperature"],
            )
            done = asyncio.run(engine.generate(asked))
            engine.release("one")
        reason = "stop" if done.stop is StopReason.STOP else "length"
        reply = said(chat.decode(done.action_ids), reason)
        reply.body["usage"] = {"prompt_tokens": len(prompt), "completion_tokens": len(done.action_ids)}
        return reply

    return ChatServer(answer)
