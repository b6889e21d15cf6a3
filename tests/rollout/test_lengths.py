"""What the memory plan takes rows to be, against rows that are played."""

from cod_lightning.contexts import HintContext
from cod_lightning.envs.levers import Levers
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.lengths import RowLength, row_lengths
from cod_lightning.types import Split
from tests.real_templates import CHATML, bpe_tokenizer

PACK = Levers().sample_pack(split=Split.TRAIN, index=0, num_tasks=2)


def test_rows_are_longer_than_their_first_prompts_and_share_the_rules():
    chat, env, context = Chat(bpe_tokenizer(CHATML)), Levers(), HintContext()
    solved, updated = row_lengths(env, context, PACK, chat, 100_000, 32)
    observation, _ = env.reset(options={"task": PACK.tasks[0]})
    rules = len(chat.encode(env.rules))
    assert rules < solved.alike < solved.longest
    assert rules + len(chat.encode(observation)) + 2 * 32 < solved.longest < updated.longest
    assert all(one.longest <= 700 for one in row_lengths(env, context, PACK, chat, 700, 32))


def test_a_context_whose_update_cannot_be_asked_for_leaves_rows_as_long_as_the_window():
    class Refusing(HintContext):
        def update(self, state, rules, episode, tokens):
            raise ValueError("no")

    assert row_lengths(Levers(), Refusing(), PACK, Chat(bpe_tokenizer(CHATML)), 1000, 32) == ()


def test_a_micro_batch_computes_what_its_rows_begin_with_once():
    assert RowLength(longest=100, alike=60).computed(450) == 4 * 100 - 3 * 60
    assert RowLength(longest=500, alike=60).computed(450) == 500
