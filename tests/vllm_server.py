"""What vLLM's server says over HTTP (0.32.0, as measured), from a thread: it dies, comes back, is slow or stale on command."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from safetensors import safe_open


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """With five, of thirty-two rows that are asked about at once some are refused."""


class FakeVLLM:
    """Answers as vLLM does; its tokens come from the request's seed, each with log-prob -1.5."""

    def __init__(
        self, *, dev_mode=True, scale_out=True, logprobs_mode="processed_logprobs", window=256, adapter_rank=0
    ) -> None:
        self.dev_mode, self.scale_out, self.logprobs_mode, self.window = dev_mode, scale_out, logprobs_mode, window
        self.adapter_rank = adapter_rank
        """If not 0, it takes adapters while it runs."""
        self.adapters: dict[str, frozenset[str]] = {}
        """Those that it has, with the names of their weights."""
        self.host = "127.0.0.1"
        self.key = ""
        """If not empty, what it asks for at every route."""
        self.dtype = "torch.float32"
        self.version = "default"
        self.after_s = 0.0
        self.status = 0
        """If not 0, what a turn is answered with."""
        self.dies_with_turn = False
        self.logprobs: Callable[[list[int]], list[float]] = lambda ids: [-1.5] * len(ids)
        """Of the tokens of a prompt."""
        self.vocabulary: dict[str, int] = {}
        """Ids of words."""
        self.spoilt: Callable[[list[int], Any], Any] = lambda ids, answer: answer
        """What becomes of the answer about a prompt."""
        self.most_loads = 1000
        """Weights that it takes before it fails to."""
        self.prefix_cache_stuck = 0
        self.held = False
        """Whether turns stand still."""
        self.asleep = False
        """Whether they do for want of memory."""
        self.keeps_one_s: float | None = None
        """From the second weights on, one turn of each is kept until others come, or no turn is asked for so long."""
        self._kept, self._asked = "", 0.0
        """The latest version that a turn was kept in; when the latest was asked for."""
        self.num_aborts = 0
        self.prompts: list[tuple[int, ...]] = []
        self.loaded: list[frozenset[str]] = []
        self.calls: Counter[str] = Counter()
        self.in_flight, self.most_in_flight = 0, 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.come_back()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def come_back(self) -> None:
        """Listen, with the weights that it is always started with."""
        self.version = "default"
        self.adapters.clear()
        self._server = _Server((self.host, self.port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def die(self) -> None:
        """Answer no further request."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        self.calls[path] += 1
        if path == "/health":
            return 200, ""
        if path == "/inference/v1/generate":
            return self._turn(body)
        if path == "/tokenize":
            words = body["prompt"].split(" ")
            ids = [self.vocabulary.get(word, 0) for word in words]
            return 200, {"tokens": ids, "token_strs": words, "count": len(ids)}
        if path == "/v1/completions":
            return self._prompt_logprobs(body)
        if not self.dev_mode:
            return 404, {"detail": "Not Found"}
        if path == "/server_info":
            model = {"logprobs_mode": self.logprobs_mode, "max_model_len": self.window, "dtype": self.dtype}
            room = {"max_lora_rank": self.adapter_rank} if self.adapter_rank else None
            return 200, {"vllm_config": {"model_config": model, "lora_config": room}}
        if path.endswith("_lora_adapter"):
            return self._adapter(path, body)
        if path == "/weight_info":
            return 200, {"weight_version": self.version}
        if path == "/collective_rpc" and len(self.loaded) >= self.most_loads:
            return 500, {"error": {"message": "no more weights", "code": 500}}
        if path == "/collective_rpc":
            with safe_open(f"{body['kwargs']['weights_path']}/model.safetensors", "pt") as file:
                self.loaded.append(frozenset(file.keys()))
            return 200, {"results": [None]}
        if path in ("/pause", "/resume"):
            self.held, self.num_aborts = path == "/pause", self.num_aborts + (query == "mode=abort")
            return 200, {"status": f"{path[1:]}d"}
        if path in ("/is_paused", "/is_sleeping"):
            return 200, {path[1:]: self.held if path == "/is_paused" else self.asleep}
        if path == "/wake_up" and not query:
            self.asleep = False
        if path == "/reset_prefix_cache":
            self.prefix_cache_stuck -= 1
            return 200, {"success": self.prefix_cache_stuck < 0}
        if path == "/update_weight_version":
            self.version = body["new_version"]
            return 200, {"success": True, "new_version": self.version}
        return 200, {"message": "done"}

    def _prompt_logprobs(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.status:
            return self.status, {"error": {"message": "it broke", "code": self.status}}
        assert body["prompt_logprobs"] == 0
        ids = body["prompt"]
        time.sleep(self.after_s)
        found = [{str(i): {"logprob": value, "rank": 1}} for i, value in zip(ids, self.logprobs(ids), strict=True)]
        answer = {"choices": [{"text": "x", "prompt_logprobs": [None, *found[1:]]}]}
        return 200, self.spoilt(ids, answer)

    def _adapter(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if not self.adapter_rank:
            return 404, {"detail": "Not Found"}
        name = body["lora_name"]
        if path == "/v1/unload_lora_adapter":
            known = self.adapters.pop(name, None) is not None
            return (200, "done") if known else (404, {"error": {"message": f"no adapter {name!r}", "code": 404}})
        if not name or name in self.adapters:
            return 400, {"error": {"message": f"the name {name!r} is empty or taken", "code": 400}}
        with safe_open(f"{body['lora_path']}/adapter_model.safetensors", "pt") as file:
            self.adapters[name] = frozenset(file.keys())
        return 200, "done"

    def _turn(self, body: dict[str, Any]) -> tuple[int, Any]:
        if not self.scale_out:
            said = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
            return 403, {"error": {"message": said, "code": 403}}
        if (adapter := body.get("model")) and adapter not in self.adapters:
            return 404, {"error": {"message": f"The model `{adapter}` does not exist.", "code": 404}}
        if self.status:
            return self.status, {"error": {"message": "it broke", "code": self.status}}
        with self._lock:
            self.prompts.append(tuple(body["token_ids"]))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        begun, num_aborts = self.version, self.num_aborts
        self._asked = time.monotonic()
        time.sleep(self.after_s)
        with self._lock:
            keeps = self.keeps_one_s is not None and len(self.loaded) > 1 and self._kept != begun
            self._kept = begun if keeps else self._kept
        while keeps and self.version == begun and time.monotonic() - self._asked < self.keeps_one_s:
            time.sleep(0.01)
        while (self.held or self.asleep) and self.num_aborts == num_aborts:
            time.sleep(0.002)
        with self._lock:
            self.in_flight -= 1
        sampling = body["sampling_params"]
        assert sampling["logprobs"] == 0
        assert sampling["ignore_eos"]
        drawn = random.Random(sampling["seed"])
        ids = [drawn.randrange(3, 40) for _ in range(sampling["max_tokens"])]
        choice = {
            "finish_reason": "length" if self.num_aborts == num_aborts else "abort",
            "token_ids": ids,
            "logprobs": {"content": [{"token_id": i, "logprob": -1.5} for i in ids]},
            "weight_versions": [{"version": version} for version in dict.fromkeys((begun, self.version))],
        }
        return 200, {"choices": [choice], "prompt_token_ids": body["token_ids"]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._say(*(self._refused() or fake.answer(self.path, {})))

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                if fake._server is None or (fake.dies_with_turn and "generate" in self.path):
                    threading.Thread(target=fake.die).start()
                    self.close_connection = True
                    return
                self._say(*(self._refused() or fake.answer(self.path, body)))

            def _refused(self) -> tuple[int, Any] | None:
                known = not fake.key or self.headers.get("Authorization") == f"Bearer {fake.key}"
                return None if known else (401, {"error": {"message": "no key, or a wrong one", "code": 401}})

            def _say(self, status: int, content: Any) -> None:
                text = content if isinstance(content, str) else json.dumps(content)
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
                    self.send_header("Content-Length", str(len(text)))
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
