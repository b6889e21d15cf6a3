"""Under what conditions a suite is played: by the trained policy, under controls, by the warm start, by an endpoint, by references.

Each control answers one way in which a rising curve could be luck: tasks that get easier, a world that remembers, a habit that
needs no context, a context that only looks useful. A further one is a class, chosen in a suite's `controls` by its `class_path`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from cod_lightning.contexts.base import ContextMechanism, Prepared, TokenView, UpdateDialogue
from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.envs.own_loop import own_loop
from cod_lightning.errors import ConfigError
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Pack

Weights = Literal["trained", "warm_start", "none"]
Contexts = Sequence[Any]
"""[N] the context's state at each position; None where none is known, and the task is left out."""


class Control:
    """The trained policy, with the contexts that it writes; a class below it says what it changes in that."""

    name: str = "trained"
    """Its key among a suite's `controls` in `evaluation.json`."""
    label: str = ""
    """What tables, curves and pages call it; empty: its name, in words."""
    main: bool = True
    """False for a row that a reader needs second."""
    weights: Weights = "trained"
    """What plays; none: neither the policy nor what it started from."""
    temperature: float | None = None
    """At which the policy is sampled; None: the suite's."""
    after_trained: bool = False
    """Whether it takes something from what the trained policy played."""

    def check(self, world: TextEnv, pack: Pack, mechanism: ContextMechanism, key: str) -> None:
        """Raise `ConfigError` for this key where the world cannot serve it."""

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        """That in which these packs are played. `trained`: what the trained policy played, of all packs of the suite."""
        return setting


class BlankedContext(Control):
    """The trained policy writes contexts as usual, and no solve prompt shows them."""

    name = "blanked_context"

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        return _controlled(setting, shown=setting.mechanism.empty())


class NoContext(Control):
    """Solve episodes only: no context is written, and a solve prompt is the world's rules alone."""

    name = "no_context"

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        mechanism = RulesAlone(setting.mechanism.updates)
        found = {pack.id: [mechanism.empty()] * len(pack) for pack in packs}
        return _controlled(replace(setting, mechanism=mechanism), contexts=found)


class ShuffledContext(Control):
    """Solve episodes only: the prompt at position n shows what the trained agent had there in the suite's next pack (after
    the last pack comes the first). At position 0 that is the empty context. It may happen to be true here."""

    name, label = "shuffled_context", "another pack's context"
    after_trained = True

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        lives = [life for group in trained for life in group.lifecycles]
        assert len(lives) != 1, "a single lifecycle has no other one's contexts"
        found = {
            life.pack_id: [None if e.status is EpisodeStatus.SKIPPED else e.state_before for e in other.solves]
            for life, other in zip(lives, [*lives[1:], *lives[:1]], strict=True)
        }
        assert found.keys() >= {pack.id for pack in packs}, "trained is not of these packs"
        return _controlled(setting, contexts=found)


class OracleContext(Control):
    """Solve episodes only: from position 0 on, the prompt shows what the world's oracle writes down after its first task of
    the pack; where the rule changes, from there on what the oracle of the new rule writes."""

    name, label = "oracle_context", "the oracle's context"

    def check(self, world: TextEnv, pack: Pack, mechanism: ContextMechanism, key: str) -> None:
        check_oracle(world, pack, mechanism, key, self.name, f"Leave {self.name} out of the suite's controls.")

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        states = oracle_contexts(setting.env, packs, setting.mechanism)
        return _controlled(setting, contexts=dict(zip([pack.id for pack in packs], states, strict=True)))


class ByWarmStart(Control):
    """The policy as it was before reinforcement learning, at the suite's own temperature or at another."""

    weights = "warm_start"

    def __init__(self, temperature: float, suite_temperature: float) -> None:
        self.name = "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"
        self.temperature = temperature


class WarmStartBlanked(BlankedContext):
    """The warm start at its best temperature, with `blanked_context`: what its contexts are worth."""

    name, label = "warm_start_blanked", "warm start, blanked context"
    weights, main = "warm_start", False

    def __init__(self, temperature: float | None = None) -> None:
        self.temperature = temperature


class ByEndpoint(Control):
    """A model behind a chat endpoint, with the contexts that it writes (`data.baseline`)."""

    name, weights = "endpoint", "none"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        """With the endpoint's model in the policy's place, in bytes; no request is sent yet."""
        from cod_lightning.models.endpoint import EndpointPolicy

        policy = EndpointPolicy()
        tokenizer = policy.tokenizer(())
        chat = Chat(tokenizer, system_prompt=setting.sampler.chat.system_prompt)
        self.engine.bind(policy.model(tokenizer), chat.stop_ids)
        own = replace(setting.sampler, engine=self.engine, chat=chat, window=policy.window, num_ids=None)
        return replace(setting, sampler=own, by_kind={})


class ByReference(Control):
    """One of the world's own players: no weights, and the same whatever was trained; `blanked`: with its context hidden."""

    weights = "none"

    def __init__(self, name: str, reference: Reference, *, blanked: bool = False, main: bool = True) -> None:
        self.name, self.reference, self.blanked, self.main = name, reference, blanked, main

    def served(self, world: TextEnv, pack: Pack) -> bool:
        """Whether the world has it."""
        try:
            return beside(world, Players).reference(self.reference, pack) is not None
        except NotImplementedError:
            return False

    def check(self, world: TextEnv, pack: Pack, mechanism: ContextMechanism, key: str) -> None:
        if not self.served(world, pack):
            expected = f"a world with a {self.reference} reference, not {world.name}"
            raise ConfigError(key, self.name, expected, f"Leave {self.name} out.")


REFERENCES = (
    ByReference("random", Reference.RANDOM, main=False),  # answers legally at random
    ByReference("memoryless", Reference.SCRIPTED, blanked=True, main=False),  # memory that the world itself has stays
    ByReference("scripted", Reference.SCRIPTED),  # perfect memory, play that is best for each task by itself
    ByReference("oracle", Reference.ORACLE),  # knows what is hidden: alone a ceiling, for tasks taken one by one
)
CONTROLS: dict[str, Control] = {
    one.name: one for one in (BlankedContext(), NoContext(), ShuffledContext(), OracleContext(), *REFERENCES)
}
"""What a suite's `controls` can name."""
DEFAULT_CONTROLS = (CONTROLS["blanked_context"], *REFERENCES)
"""The controls of a suite that names none, as far as its world has the references."""


class RulesAlone(ContextMechanism):
    """Shows tasks the environment's rules alone.

    Args:
        updates: As those of the mechanism in whose place it is, for lifecycles of the same episodes.
    """

    def __init__(self, updates: bool) -> None:
        self.updates = updates

    def text(self, state: Any) -> str:
        return ""

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return Prepared(rules, state)

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        raise NotImplementedError("nothing is rewritten")


def oracle_contexts(world: TextEnv, packs: Sequence[Pack], mechanism: ContextMechanism) -> list[Contexts]:
    """For each pack and position, the context that the oracle of that rule writes once it has played the first task under it.

    The oracle plays and writes through the ordinary rollout, so that any mechanism and any environment will do. None where the
    environment failed it, empty where its update did not parse.
    """
    from cod_lightning.evaluation.references import parts_of, scripted_sampler

    found: list[Contexts] = []
    for pack in packs:
        states: list[Any] = []
        for part in parts_of(world, pack):
            sampler = scripted_sampler(beside(world, Players).reference(Reference.ORACLE, part), mechanism)
            twice = replace(part, tasks=(part.tasks[0], part.tasks[0]))
            (group,) = run_groups([twice], 1, Setting(env=world, mechanism=mechanism, sampler=sampler))
            last = [episode for episode in group.lifecycles[0].episodes if episode.position == 0][-1]
            parsed = last.success or last.kind is EpisodeKind.SOLVE
            state = None if last.reward is None else last.state_after if parsed else mechanism.empty()
            states += [state] * len(part)
        found.append(states)
    return found


def check_oracle(world: TextEnv, pack: Pack, mechanism: ContextMechanism, key: str, value: str, remedy: str) -> None:
    """Raise `ConfigError` for this key where the oracle of this pack writes nothing that the mechanism can read."""
    try:
        written = any(
            state is not None and mechanism.text(state) for state in oracle_contexts(world, [pack], mechanism)[0]
        )
    except NotImplementedError:
        written = False
    if not written or own_loop(world):
        expected = f"a world whose oracle writes a context that can be read, not {world.name}"
        raise ConfigError(key, value, expected, remedy)


def _controlled(setting: Setting, **changes: Any) -> Setting:
    from cod_lightning.lifecycles.controls import Controlled

    return replace(setting, program=Controlled(program=setting.program, **changes))
