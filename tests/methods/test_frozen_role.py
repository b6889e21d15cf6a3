"""One role played by a policy that is not trained: the rollout asks it, training leaves it out, and it stays as it was."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from cod_lightning.errors import ConfigError
from cod_lightning.methods.frozen_role import FrozenRole
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, Split
from tests.adapted import TINY
from tests.cases import each
from tests.small_fit import small_data, small_policy
from tests.stubs import FunctionEngine, PlainContext, WordWorld


def trained():
    chat = Chat(TinyPolicy(**TINY).tokenizer(WordWorld().words()))
    say = (*chat.encode("w1"), chat.end_of_turn)
    return Sampler(engine=FunctionEngine(lambda _: say), chat=chat, window=96, max_new_tokens=4, policy_version=7)


@each("kind", EpisodeKind)
def test_its_episodes_are_the_checkpoint_s_and_the_others_are_the_trained_policy_s(base, kind):
    sampler, role = trained(), FrozenRole(str(kind), str(base))
    frozen = role.sampler(sampler, TinyPolicy(**TINY), sampler.chat.stop_ids)
    world = WordWorld()
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    setting = Setting(env=world, mechanism=PlainContext(), sampler=sampler, by_kind={kind: frozen})
    (group,) = run_groups([pack], 2, setting)
    model = AutoModelForCausalLM.from_pretrained(base)
    for episode in (one for life in group.lifecycles for one in life.episodes):
        assert not episode.error
        for turn in episode.turns:
            if episode.kind is not kind:
                assert turn.response == "w1"
            else:
                assert turn.policy_version == 7, "so that its noise goes by the trained policy's version"
                if not turn.extends:
                    ids = torch.tensor([[*turn.new_ids, *turn.action_ids]])
                    logprobs = model(ids).logits[0].log_softmax(-1)[len(turn.new_ids) - 1 : -1]
                    expected = logprobs.gather(1, ids[0, len(turn.new_ids) :, None])[:, 0].tolist()
                    assert turn.behaviour_logprobs == pytest.approx(expected, abs=1e-4)


def test_without_a_path_it_is_the_policy_that_training_begins_with(base):
    sampler, policy = trained(), TinyPolicy(**TINY, weights=str(base))
    role = FrozenRole("update")
    role.check({})
    role.sampler(sampler, policy, sampler.chat.stop_ids)
    own = dict(role.engine._bound().model.named_parameters())
    assert all(torch.equal(own[n], p) for n, p in AutoModelForCausalLM.from_pretrained(base).named_parameters())


def test_without_a_path_and_without_weights_there_is_nothing_to_freeze_and_another_vocabulary_is_refused(base):
    sampler = trained()
    with pytest.raises(ConfigError, match=r"data\.frozen\.path is None"):
        FrozenRole("update").sampler(sampler, TinyPolicy(**TINY), sampler.chat.stop_ids)
    with pytest.raises(ConfigError, match=r"data\.frozen\.path is "):
        FrozenRole("solve", str(base)).check({"other": 0})


@each("kinds", [None, ["update"], ["solve", "update"]])
def test_what_a_frozen_role_plays_is_not_trained_on(tmp_path, kinds):
    module, own = GRPOModule(small_policy(), trained_kinds=kinds), small_data(frozen=FrozenRole("solve"))
    own.trainer = SimpleNamespace(lightning_module=module, default_root_dir=tmp_path)
    own.setup("fit")
    assert EpisodeKind.SOLVE not in own._credit.kinds
    assert EpisodeKind.UPDATE in own._credit.kinds
