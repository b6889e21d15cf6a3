"""`deploy`: a policy lives on in a world, task after task, and keeps its context in a state folder (CoD-Deploy)."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.text import Text
from transformers import PreTrainedModel

from cod_lightning.adapters import synced_weights, weights_digest
from cod_lightning.commands.parser import Options, program
from cod_lightning.commands.train import SAMPLED, built, model_of
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.deployment import ContextStore, DeployedAgent
from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import ConfigError
from cod_lightning.files import check_folder, locked
from cod_lightning.ranges import Natural
from cod_lightning.rollout.deadlines import Watchdog
from cod_lightning.rollout.setting import RolloutMonitor, Setting
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Split

_OPTIONS: Options = SAMPLED | {
    "state": (str, ..., "Folder of the agent; made if need be."),
    "num_tasks": (Natural, 10, "Tasks to solve now."),
    "stream": (Natural, 0, "Index of the pack that the tasks come from."),
}


def run(argv: Sequence[str]) -> int:
    """Go on where the state folder is, or begin."""
    cli = built("deploy", _OPTIONS, argv)
    options = cli.config
    check_folder(Path(options.state), "--state")
    if (Path(options.state) / "config.yaml").is_file():
        raise ConfigError("--state", options.state, "a folder of an agent, not of a run", "Name another.")
    _check_lasting(cli.datamodule.env)
    model, policy = model_of(cli, options.ckpt_path), cli.model.policy
    setting, engine = setting_of(cli, model), options.data.engine
    weights = f"weights {weights_digest(model)}" if policy.has_weights else engine.init_args.get("model")
    identity = {  # what must not change under an agent
        "world": cli.datamodule.env.name,
        "stream": f"test/{options.stream}",
        "context": yaml.safe_dump(options.data.context.as_dict(), default_flow_style=True).strip(),
        "policy": f"{type(policy).__name__} with {weights}",
    }
    with locked(Path(options.state), "--state", "deploy"), closing(ContextStore(options.state)) as store:
        store.claim(identity, new_policy=options.accept_changes)
        return _live(cli, setting, store)


def _live(cli: Any, setting: Setting, store: ContextStore) -> int:
    """Solve as many tasks as were asked for; the exit code."""
    options, console = cli.config, Screen()
    try:
        agent = DeployedAgent(setting, store, on_episode=lambda e: _print_episode(console, store, e))
        done = store.num_solved()
        num_tasks = done + options.num_tasks
        pack = drawn_pack(setting.env, max(1, num_tasks), 0, options.stream, Split.TEST)
        if done:
            console.print(f"{done} tasks are done; going on with context version {store.current().version}")
        report = store.path.parent / "stalled.txt"
        stall_s, remedy = cli.datamodule.deadlines.stall_s, "deploy again to go on with the same --state"
        with closing(agent), Watchdog(setting.sampler.liveness, stall_s, report, "the deployment", remedy):
            agent.resume(list(pack.tasks[:done]))
            for task in pack.tasks[done:num_tasks]:
                agent.solve(task)
        _summary(console, store)
    except KeyboardInterrupt:
        console.print(f"\nStopped; {store.num_solved()} tasks are kept in {store.path}", soft_wrap=True)
        return 130
    finally:
        if report := cli.datamodule.engine.report():
            console.print(report)
    return 0


def setting_of(cli: Any, model: PreTrainedModel, monitor: RolloutMonitor | None = None) -> Setting:
    """The environment of a command's run and its policy there, on its device and bound to the engine, as a rollout meets them."""
    data, policy = cli.datamodule, cli.model.policy
    model.to(torch.device("cuda" if torch.cuda.is_available() else "cpu")).eval()  # pyright: ignore[reportArgumentType]
    data.engine.bind(model, data.chat.stop_ids, policy.window)
    data.engine.update_weights(synced_weights(model, adapter=data.engine.takes_adapters), 0)
    sampler = data.sampler(policy, model, temperature=cli.config.sampling_temperature)
    return data.setting(sampler, monitor or RolloutMonitor())


def _check_lasting(env: TextEnv) -> None:
    """Raise `ConfigError` where the rule would change at another task each time that the agent's tasks become more."""
    if isinstance(env, NonStationary) and env.change_at is None:
        expected = "a position, since an agent's tasks have no last one among which it could be drawn"
        raise ConfigError("data.env.change_at", "null", expected, "Set it to 5, for example.")
    within = [env.world] if isinstance(env, WrappedWorld) else env.worlds.values() if isinstance(env, Mixture) else []
    for world in within:
        _check_lasting(world)


def _print_episode(console: Console, store: ContextStore, episode: Episode) -> None:
    if episode.kind is EpisodeKind.UPDATE:
        lines = episode.context_after.strip().splitlines() or ["(empty)"]
        kept = "" if episode.success else f" (the rewrite is {episode.status}: the old one is kept)"
        console.print(Text(f"    context {store.current().version}: {lines[0][:80]}").append(kept, "yellow"))
        return
    if episode.kind is EpisodeKind.WRITE:
        return
    reward = "missing" if episode.reward is None else f"{episode.reward:.3f}"
    cut = episode.status in (EpisodeStatus.MALFORMED, EpisodeStatus.TRUNCATED)
    came = (f"reward {reward}, {episode.status}", "yellow" if cut else "green" if episode.success else "red")
    console.print(Text.assemble(f"task {episode.position}: ", came, f", turns: {len(episode.turns)}"))


def _summary(console: Console, store: ContextStore) -> None:
    rewards = store.rewards()
    known = [reward for reward in rewards if reward is not None]
    if known:
        missing = f"; {len(rewards) - len(known)} missing" if len(known) < len(rewards) else ""
        console.print(f"tasks in all: {len(rewards)}; mean reward {sum(known) / len(known):.3f}{missing}")
        print(f"Look: {program()} context log --state {quote(str(store.path.parent))}", file=sys.stderr)
