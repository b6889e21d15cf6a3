"""The engine that samples with vLLM servers: in a process of its own, on other GPUs, or on other hosts.

Token ids in, token ids and their log-probabilities out. Every answer says which weights its tokens were sampled by; one from
others than those of the last sync is thrown away, and its server gets the right ones before it serves again.
"""

import secrets
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import structs
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import trained_weights
from cod_lightning.clients.access import key_of
from cod_lightning.engines.base import NO_MODEL, Completion, Engine, Request, Served
from cod_lightning.engines.vllm_server.client import ServerClient, turn_body
from cod_lightning.engines.vllm_server.fleet import (
    Fleet,
    OneServer,
    Server,
    check_facts,
    checked_urls,
    on_all,
    see_reachable,
    start_all,
)
from cod_lightning.engines.vllm_server.process import LocalServers, ServerProcess, check_local
from cod_lightning.engines.vllm_server.weights import WeightSupply
from cod_lightning.engines.vllm_start import check_served, room_for, served_of, whole_sync
from cod_lightning.errors import EngineFailure
from cod_lightning.ranges import Count, NonNegative, Positive
from cod_lightning.ranks import gathered, num_ranks, rank


class VLLMServerEngine(Engine):
    """Samples with one or many vLLM servers, a dialogue always with the one that holds its prefix.

    Log-probabilities are those after temperature and top-p (`processed_logprobs`, which the server has to be started with), so
    they belong to the distribution that was sampled from. Every request carries its own seed.

    Ranks share the servers that run already: rank 0 brings them the weights, once every rank has its turns back. One that was
    started here serves the rank that started it.

    Args:
        urls: Addresses of servers that run already, for example [http://gpu2:8000]; null starts one here.
        start: Servers to start on this machine for each rank, each in a process of its own; null is 1 without `urls`, else 0.
        local: How they are started.
        api_key_variable: Environment variable with the key that the servers ask for. Where it is empty or missing, those that
            run already are asked without one, and those started here by a random one.
        weights_folder: Where a sync writes weights for the servers; null is shared memory, which those on other hosts cannot read.
        max_concurrent: Most turns in flight at one server.
        timeout_s: Most time for one turn at one server; another server has as much again.
        wait_s: How long the run waits at its start for servers that run already, or are being started elsewhere.
        return_s: How long a turn waits while no server is up; the run ends after that.
        sync_timeout_s: Most time for one server to take new weights.
        sleep: Servers give their memory back while training goes on, for one that shares its GPU with training. A server that
            runs already needs --enable-sleep-mode.
    """

    takes_adapters = True

    def __init__(
        self,
        urls: list[str] | None = None,
        start: Count | None = None,
        local: LocalServers = LocalServers(),  # noqa: B008  (frozen; the CLI's default)
        api_key_variable: str = "VLLM_API_KEY",
        weights_folder: str | None = None,
        max_concurrent: Count = 256,
        timeout_s: Positive = 600.0,
        wait_s: NonNegative = 0.0,
        return_s: Positive = 300.0,
        sync_timeout_s: Positive = 600.0,
        sleep: bool = False,
    ) -> None:
        self.urls = checked_urls(urls or ())
        self.start = start or (0 if self.urls else 1)
        self.wait_s = wait_s
        self.local, self.api_key_variable = local, api_key_variable
        self.weights_folder, self.max_concurrent = weights_folder, max_concurrent
        self.timeout_s = timeout_s
        self.return_s, self.sync_timeout_s = return_s, sync_timeout_s
        self.sleeps, self.asleep = sleep, False
        self._live = set[object]()
        """Turns that are being waited for."""
        self._oldest = -1
        """The version that every server has, or a newer one; those that are up."""
        self._fleet: Fleet | None = None
        self._supply: WeightSupply | None = None
        self._model: PreTrainedModel | None = None
        self._stop_ids: list[int] = []
        self._names: frozenset[str] = frozenset()
        self._adapted = False
        """Whether servers are handed an adapter."""
        self._run = secrets.token_hex(4)

    # ------------------------------------------------------------------ life

    def check(self, served: Served) -> None:
        """Ask the servers that run already who they are; see that others could be started."""
        key = key_of(self.api_key_variable, "data.engine.api_key_variable")
        if self.start:
            check_local(self.start * max(self.num_ranks, num_ranks()), self.local)
            self.check_started(served)
        clients = [self._client(url, key) for url in self.urls]
        on_all(clients, lambda one: see_reachable(one, self.wait_s))

    def check_started(self, served: Served) -> None:
        """Raise `ConfigError` for what servers of this machine could not serve, those of the command `serve` too."""
        check_served(served, type(self).__name__, self.local.dtype)

    def bind(self, model: nn.Module, stop_ids: Iterable[int], window: int | None = None) -> None:
        """Start what is to be started; see that every server suits the model."""
        served = served_of(model)
        self.check(served)
        self.close()
        self._model = trained = cast(PreTrainedModel, model)
        self._stop_ids = sorted(stop_ids)
        self._adapted = served.adapter_rank > 0
        self._names = frozenset(trained_weights(model))
        longest = window or int(trained.config.get_text_config().max_position_embeddings)
        self._run = gathered(self._run)[0]
        self._supply = WeightSupply(self.weights_folder, adapter=self._adapted, in_flight=self.in_flight)
        key = key_of(self.api_key_variable, "data.engine.api_key_variable")
        first = rank() % max(1, len(self.urls))  # the first dialogues of all ranks do not meet at one server
        servers = [Server(self._client(url, key)) for url in self.urls[first:] + self.urls[:first]]
        if self.start:
            key = key or secrets.token_urlsafe(32)
            folder = self._supply.begin(trained)
            for index in range(self.start * rank(), self.start * (rank() + 1)):
                servers.append(self.local_server(index, folder, served, longest, key))
            start_all(servers)
        self._fleet = Fleet(servers, self._supply.bring_back, return_s=self.return_s)
        facts = on_all(servers, lambda server: server.client.facts())
        by_url = dict(zip([s.url for s in servers], facts, strict=True))
        self.precision = check_facts(by_url, longest, served.adapter_rank)

    def local_server(
        self, index: int, model: Path | str, served: Served, window: int, key: str, **where: Any
    ) -> Server:
        """A server of this machine that is still to be started, its folder or name of a `model` that is to be `served`.

        `index` is its place among all that are started here; `where` has its host and port.
        """
        process = ServerProcess(
            self.local,
            index=index,
            model=model,
            dtype=self.local.dtype or served.dtype,
            window=window,
            log=(self.log_folder or Path()) / f"vllm_server_{index}.log",
            key=key,
            sleep=self.sleeps,
            adapter_rank=room_for(served.adapter_rank),
            **where,
        )
        return Server(self._client(process.url, key), process)

    def close(self) -> None:
        """End the servers that were started here, and remove the weights."""
        for server in self._servers:
            if server.process is not None:
                server.process.stop()
        if self._supply is not None:
            self._supply.close()
        self._fleet = self._supply = None

    @property
    def _servers(self) -> Sequence[Server]:
        return self._fleet.servers if self._fleet else ()

    # ------------------------------------------------------------------ weights

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        """Hand all weights to every server and empty its prefix cache; all ranks take part.

        Refused while turns are in flight, unless they are to go on: each server has them stand still while it loads.
        At the first sync every server has to take them; later one that does not is left out until the next sync. Where none is
        left since all are gone, turns wait for one.
        """
        if self._model is None or self._supply is None or self._fleet is None:
            raise EngineFailure(NO_MODEL)
        if not self.in_flight:
            self._see_idle("weights change")
        mine = self._mine()
        named = whole_sync(weights, self._names, "cpu" if mine else "meta")  # a rank without servers keeps nothing
        if policy_version <= self.policy_version:
            # of another checkpoint: no server that was gone may pass for one that has these
            self._run = gathered(secrets.token_hex(4))[0]
        first, self.policy_version = self.policy_version < 0, policy_version
        if not self.in_flight:
            self._fleet.forget()
            self._oldest = policy_version
        self._supply.sync(self._model, named, self.label, mine)
        self._agree(mine, strict=first)
        self._oldest = policy_version

    @property
    def in_flight(self) -> bool:
        """With `data.max_staleness` above 1; an adapter changes between rollouts in any case, since turns ask for it by name."""
        return self.max_staleness > 1 and not self._adapted

    def sleep(self) -> None:
        """All of them, once no rank has a turn in flight: the next sync brings every weight again."""
        if self.sleeps and not self.asleep:
            self._see_idle("servers sleep")
            self.asleep = True
            self._tell(lambda client: client.sleep(keep=self._adapted))

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """One part after the other; with the second they serve again."""
        if self.asleep:
            self._tell(lambda client: client.wake(part))
            gathered(part)
            self.asleep = part == "weights"

    def _tell(self, ask: Callable[[ServerClient], None]) -> None:
        """Ask those that are up; one that fails is lost, as at a sync."""

        def one(server: Server) -> None:
            try:
                ask(server.client)
            except EngineFailure as failure:
                server.lose(str(failure))

        on_all([server for server in self._mine() if server.up], one)

    @property
    def label(self) -> str:
        """What servers call the weights of the last sync; others of the same version are not mistaken for them."""
        return self._label(self.policy_version)

    def _label(self, version: int) -> str:
        return f"{self._run}:{version}"

    def _mine(self) -> list[Server]:
        """Those that this rank brings weights: what it has started, and on rank 0 all others."""
        return [server for server in self._servers if server.process is not None or rank() == 0]

    def _see_idle(self, what: str) -> None:
        """Every rank comes here with all its turns back, and none goes on before the last one came."""
        if num_live := sum(gathered(len(self._live))):
            raise EngineFailure(f"{num_live} turns are in flight; {what} only between rollouts")

    def _agree(self, mine: Sequence[Server], *, strict: bool) -> None:
        """Tell the other ranks which servers have the weights. All raise `EngineFailure` where one rank has none that serves,
        unless one that is gone may come back."""
        troubles = gathered({server.url: server.trouble for server in mine})
        known = {url: trouble for of_rank in troubles for url, trouble in of_rank.items()}
        for server in self._servers:
            if server not in mine:
                server.trouble = known[server.url]
                server.up = not server.trouble
        lost = sorted({trouble for of_rank in troubles for trouble in of_rank.values() if trouble})
        if strict and lost:
            doubt = "Was it started for another model, or can it not read data.engine.weights_folder?"
            raise EngineFailure(f"{'; '.join(lost)}. {doubt}")
        serves = any(server.up for server in self._servers)
        # One that runs elsewhere and does not answer may come back; one that answers has refused the weights.
        gone = any(not server.up and server.process is None and not server.client.healthy() for server in mine)
        found = gathered((serves, gone))
        if not all(serves for serves, _ in found) and not any(comes_back for _, comes_back in found):
            raise EngineFailure(f"no vLLM server took the weights: {'; '.join(lost)}")
        if own := self._fleet and self._fleet.troubles():
            warnings.warn(f"vLLM servers left out until the next sync: {own}", stacklevel=3)

    # ------------------------------------------------------------------ turns

    async def generate(self, request: Request) -> Completion:
        """Sample one turn; at another server where the first is lost."""
        if self._fleet is None:
            raise EngineFailure(NO_MODEL)
        if self.asleep:
            raise EngineFailure("the servers sleep; a sync of the weights wakes them")
        body = turn_body(request, self._stop_ids, self.label if self._adapted else "")
        begun = self._oldest

        def known() -> dict[str, int]:
            """Labels, with their versions, of weights that a token of this turn may be by: one, unless they change meanwhile."""
            return {self._label(version): version for version in range(begun, self.policy_version + 1)}

        self._live.add(live := object())
        try:
            turn, labels = await self._fleet.ask(request.dialogue, body, known)
        finally:
            self._live.discard(live)
        versions = [known()[label] for label in labels]
        self.num_interrupted_turns += len(versions) > 1
        return structs.replace(turn, policy_version=min(versions, default=begun))

    def release(self, dialogue: str) -> None:
        if self._fleet:
            self._fleet.release(dialogue)

    def replicas(self) -> Sequence[Engine]:
        """One view of the engine for each server that is up."""
        return [OneServer(self, server, self._fleet) for server in self._servers if server.up and self._fleet]

    def report(self) -> str:
        """Losses of servers, where there were any."""
        if self._fleet is None or not self._fleet.num_lost:
            return ""
        down = f"; down now: {self._fleet.troubles()}" if self._fleet.troubles() else ""
        return f"vLLM servers lost {self._fleet.num_lost} times, {self._fleet.num_rerouted} dialogues moved{down}"

    def _client(self, url: str, key: str) -> ServerClient:
        return ServerClient(url, key, self.sync_timeout_s, max_concurrent=self.max_concurrent, timeout_s=self.timeout_s)
