"""What environment and context show, and what players answer: the sentences that a policy's tokenizer is made of."""

import random
from collections.abc import Sequence
from functools import partial

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.datamodules.checks import unplayable
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.errors import answering
from cod_lightning.evaluation.references import replying_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Message, Pack, Split

_NUM_PACKS = 64
_PACK_SIZE = 4


def sentences(env: TextEnv, context: ContextMechanism) -> tuple[str, ...]:
    """All messages and responses of the scripted and the random player in lifecycles through training packs, sorted.

    They depend on environment and context alone, not on a run's seed and sizes nor on how good its demonstrations are, so
    that a warm start, its training and every later test have one tokenizer.
    """
    said: dict[str, None] = {}
    with answering(
        partial(unplayable, env), "an environment with reference players, from whose sentences pieces are made"
    ):
        for index in range(_NUM_PACKS):
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=_PACK_SIZE)
            for kind in (Reference.SCRIPTED, Reference.RANDOM):
                _play(env, context, pack, Player(beside(env, Players).reference(kind, pack), context), said)
    return tuple(sorted(said))


def _play(env: TextEnv, context: ContextMechanism, pack: Pack, player: Player, said: dict[str, None]) -> None:
    """Play one lifecycle and add what is said in it."""

    def reply(messages: Sequence[Message], rng: random.Random) -> str:
        response = player.reply(messages, rng)
        said.update(dict.fromkeys((*(message.content for message in messages), response)))
        return response

    run_groups([pack], 1, Setting(env=env, mechanism=context, sampler=replying_sampler(reply)))
