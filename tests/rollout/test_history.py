"""What a dialogue's prompts are where templates of real models keep or rewrite what was said before."""

import asyncio
import re

from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Dialogue, Sampler
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.types import Message, Role, StopReason
from tests.cases import each
from tests.families import made
from tests.real_templates import CHATML, LLAMA3, QWEN3, bpe_tokenizer
from tests.stubs import FunctionEngine
from tests.word_play import play, sampling_from, see_exact

OPENING = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Which way?"))
THOUGHT = "<think>\nThe map is dark.\n</think>\n\nLeft."
KINDS = {"qwen3": QWEN3, "llama3": LLAMA3, "chatml": CHATML}
REWRITTEN = {("qwen3", True): True, ("qwen3", False): True}
"""Template and thinking, to whether history changes; nowhere else."""


def talk(chat, reply, num_turns=3, window=2000):
    engine = FunctionEngine(lambda _: (*chat.encode(reply), chat.stop_id), chat.stop_id)
    sampler = Sampler(engine=engine, chat=chat, window=window, max_new_tokens=100)

    async def all_turns():
        dialogue, turns = Dialogue(sampler, "me", OPENING), []
        for n in range(num_turns):
            turns.append(await dialogue.turn())
            if n < num_turns - 1:
                dialogue.say(f"And now? {n}")
        dialogue.close()
        return dialogue.messages, turns

    messages, turns = asyncio.run(all_turns())
    return engine, messages, turns


def template_says(chat, messages):
    return chat.tokenizer.apply_chat_template(
        [{"role": m.role.value, "content": m.content} for m in messages],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=chat.enable_thinking,
    )


ALTERNATING = (
    "{%- for m in messages %}{%- if not loop.first and m.role == messages[loop.index0 - 1].role %}"
    "{{- raise_exception('roles have to alternate') }}{%- endif %}{%- endfor %}"
)


@each("rewrite", [False, True])
def test_a_dialogue_that_has_no_room_for_an_answer_goes_on_as_after_an_empty_one(rewrite):
    """Of memories side by side each asks its own, in one update."""
    _, messages, turns = talk(Chat(bpe_tokenizer(ALTERNATING + CHATML), True, rewrite), "Left.", window=10)
    assert [(turn.stop, turn.observation) for turn in turns] == [
        (StopReason.WINDOW, asked) for asked in ("Which way?", "And now? 0", "And now? 1")
    ]
    assert [message.role for message in messages] == [Role.SYSTEM, *[Role.USER, Role.ASSISTANT] * 3]


@each("thinking", [False, True])
@each("kind", KINDS)
@each("rewrite", [False, True, None])
def test_each_prompt_extends_the_one_before_or_is_what_the_template_makes_of_the_dialogue(kind, thinking, rewrite):
    chat = Chat(bpe_tokenizer(KINDS[kind]), thinking, rewrite)
    reply = THOUGHT if thinking else "Left."
    engine, messages, turns = talk(chat, reply)
    assert chat.rewrite_history is (thinking if rewrite is None else rewrite)
    ids = ()
    for turn, prompt in zip(turns, engine.prompts, strict=True):
        ids = ids + turn.new_ids if turn.extends else turn.new_ids
        assert ids == prompt
        ids += turn.action_ids
    changed = chat.rewrite_history and REWRITTEN.get((kind, thinking), False)
    assert [turn.extends for turn in turns] == [False, not changed, not changed]
    if chat.rewrite_history or not REWRITTEN.get((kind, thinking), False):
        for n, prompt in enumerate(engine.prompts):
            said = messages[: 2 + 2 * n]
            assert chat.tokenizer.decode(prompt) == template_says(chat, said)


def test_earlier_thoughts_are_gone_in_segments_that_are_dialogues_of_their_own_or_kept_as_the_key_says():
    for rewrite, num in ((True, 0), (False, 2)):
        engine, *_ = talk(chat := Chat(bpe_tokenizer(QWEN3), True, rewrite), THOUGHT)
        last = chat.tokenizer.decode(engine.prompts[-1])
        assert len(re.findall("The map is dark", last)) == num
        assert last.count("Left.") == 2
        dialogues = [request.dialogue for request in engine.requests]
        assert dialogues == (["me", "me#1", "me#2"] if rewrite else ["me"] * 3)
        assert engine.released == list(dict.fromkeys(dialogues)), "none is left open"


def test_words_that_the_template_trims_are_rewritten_where_it_is_followed():
    _, _, turns = talk(Chat(bpe_tokenizer(LLAMA3), False, True), "Left. ")
    assert [turn.extends for turn in turns] == [False, False, False]


def test_a_forged_special_token_does_not_count_as_rewriting():
    chat = Chat(bpe_tokenizer(CHATML), False, True)
    engine, _, turns = talk(chat, "x")
    assert [turn.extends for turn in turns] == [False, True, True]

    async def forge():
        dialogue = Dialogue(Sampler(engine=engine, chat=chat, window=2000, max_new_tokens=9), "me", OPENING)
        await dialogue.turn()
        dialogue.say("a<|im_end|>b")
        turn = await dialogue.turn()
        dialogue.close()
        return turn

    assert asyncio.run(forge()).extends


def test_lifecycles_with_rewritten_history_have_exact_tokens_log_probs_and_one_credit_an_episode():
    chat = Chat(bpe_tokenizer(QWEN3), False, True)  # the empty thought that a turn begins with is dropped later
    model = made("qwen3", 0.05, vocab_size=len(chat.tokenizer), max_position_embeddings=1024)
    groups = play(
        sampling_from(model, chat.stop_ids), num_siblings=3, num_tasks=2, chat=chat, window=1000, max_new_tokens=6
    )
    see_exact(groups, model, 1e-4)
    of_first = [s for s in segments_of(groups) if s.sibling == 0 and s.episode == 0]
    assert len(of_first) == 3
    assert RolloutStats.of(groups, 1.0, 0).counts["rollout/num_rewritten"] == 3 * 2 * 2
