"""What the memory plan takes rows to be, against rows that are played."""

from cod_lightning.contexts import HintContext, StackedContext
from cod_lightning.envs.levers import Levers
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.lengths import longest_row
from cod_lightning.types import Split
from tests.real_templates import CHATML, bpe_tokenizer
from tests.word_play import scripted

PACK = Levers().sample_pack(split=Split.TRAIN, index=0, num_tasks=2)


def test_rows_are_longer_than_their_first_prompts():
    chat, env, context = Chat(bpe_tokenizer(CHATML)), Levers(), HintContext()
    longest = longest_row(env, context, PACK, chat, 100_000, 32)
    observation, _ = env.reset(options={"task": PACK.tasks[0]})
    first = len(chat.encode(env.rules)) + len(chat.encode(observation))
    assert first + 2 * 32 < longest < 100_000
    assert 128 <= longest_row(env, context, PACK, chat, 100_000, 64) - longest <= 12 * 32
    assert longest_row(env, context, PACK, chat, 700, 32) == 700


def test_an_update_in_several_turns_is_as_long_as_all_of_them():
    chat, env = Chat(bpe_tokenizer(CHATML)), Levers()
    context = StackedContext([HintContext(), SkillsContext(), NotebookContext()])
    (group,) = scripted(env, context)
    for update in group.lifecycles[0].updates:
        assert len(update.turns) == 3
        seen = sum(len(chat.encode(text)) for turn in update.turns for text in (turn.observation, turn.response))
        assert seen < longest_row(env, context, PACK, chat, 100_000, 32) < 5 * seen


def test_a_context_whose_update_cannot_be_asked_for_leaves_rows_as_long_as_the_window():
    class Refusing(HintContext):
        def update(self, state, rules, episode, tokens):
            raise ValueError("no")

    assert longest_row(Levers(), Refusing(), PACK, Chat(bpe_tokenizer(CHATML)), 1000, 32) == 1000
