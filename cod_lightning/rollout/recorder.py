"""What an agent program asks of the policy in one task, as turns in exact ids.

A request whose messages go on from the latest ones extends their ids: the response stays as it was sampled, and only what the
template puts after it is added. Any other request (a second agent, a shortened history) begins a new segment of the episode.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cod_lightning.errors import CodLightningError
from cod_lightning.rollout.asked import AskedDialogue
from cod_lightning.rollout.chat_request import BadRequest, ChatRequest, Reply, spoken, style_of
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.types import Message, Role, StopReason, Turn

MOST_WAITING = 64
"""Requests of one task at a time; they are answered one after the other."""


class Closed(Exception):
    """The task is over, or was ended: nothing more is answered."""


class Recorder:
    """The policy as the program of one task meets it.

    Args:
        sampler: The policy.
        identity: Of the episode; it keys the noise.
        system: Put before the system message of each chat request; empty where the program shows the context itself.
        most_turns: Requests that are answered; a further one ends the task.
        see: Called with the texts of a request that are not the policy's; what it raises ends the run.
        turns: What is answered is put there.
    """

    def __init__(
        self,
        sampler: Sampler,
        identity: str,
        system: str,
        most_turns: int,
        see: Callable[[str], None],
        turns: list[Turn],
    ) -> None:
        self.sampler, self.system, self.most_turns, self.see = sampler, system, most_turns, see
        self.turns = turns
        self.fault: BaseException | None = None
        """What ended the task from this side: of the engine, or of what the program said."""
        self.limit = ""
        """The limit that ended the task, in words; empty where none did."""
        self.ended = asyncio.Event()
        """Set when the task can go on no more."""
        self._dialogue = AskedDialogue(sampler, identity)
        self._turn, self._running = asyncio.Lock(), set[asyncio.Task[Any]]()

    async def chat(self, request: ChatRequest) -> Reply:
        """Answer a chat request. Raises `BadRequest` and `Closed`."""
        messages, tools = self._with_system(request.listed()), request.tools or ()

        async def answered() -> Reply:
            try:
                for one in spoken(messages):
                    if one.role is not Role.ASSISTANT:
                        self.see(one.content)
                self._dialogue.ask(messages, tools)
            except CodLightningError:
                raise
            except Exception as error:  # templates and what they are given raise what they like
                raise BadRequest(f"the policy's chat template does not take these messages: {error}") from None
            turn = await self._sampled(request.most_tokens)
            prompt_tokens = len(self._dialogue.ids) - len(turn.action_ids)
            reply = Reply.of(turn, len(self.turns) - 1, request, style_of(self.sampler.chat), prompt_tokens)
            self._dialogue.said = [*messages, reply.listed]
            return reply

        return await self._in_turn(answered)

    async def tokens(self, ids: Sequence[int], most_tokens: int | None) -> Turn:
        """Go on from a prompt in ids. Raises `BadRequest` and `Closed`."""
        num_ids = self.sampler.vocabulary_size
        if not ids or min(ids) < 0 or max(ids) >= num_ids:
            raise BadRequest(f"token_ids have to be ids from 0 to {num_ids - 1:,}, at least one")

        async def answered() -> Turn:
            dialogue, num = self._dialogue, len(self._dialogue.ids)
            extends = num > 0 and list(ids[:num]) == list(dialogue.ids)
            new = tuple(ids[num:]) if extends else tuple(ids)
            message = Message(Role.USER, self.sampler.chat.decode(new))
            dialogue.put([*(dialogue.messages if extends else ()), message], new, extends=extends)
            dialogue.said = ()
            return await self._sampled(most_tokens)

        return await self._in_turn(answered)

    async def close(self) -> None:
        """Answer nothing more, and give the engine's place back. Raises what the engine raises."""
        self.ended.set()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        if self._dialogue.ids:
            self._dialogue.close()

    async def _in_turn(self, answered: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, after those to earlier requests."""
        if len(self._running) >= MOST_WAITING:
            raise BadRequest(f"more than {MOST_WAITING} requests of one task at a time")
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._turn:
                if self.ended.is_set():
                    raise Closed
                if len(self.turns) >= self.most_turns:
                    self.limit = f"All {self.most_turns} turns are used up."
                    self.ended.set()
                    raise Closed
                return await answered()
        except (BadRequest, Closed):
            raise
        except BaseException as error:
            if not self.ended.is_set():
                self.fault = error
                self.ended.set()
            raise Closed from error
        finally:
            self._running.discard(task)

    def _with_system(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages, what the program's own system messages say after what the task is to be shown."""
        if not self.system:
            return messages
        num = next((n for n, one in enumerate(messages) if one["role"] != "system"), len(messages))
        text = "\n\n".join([self.system, *(one["content"] for one in messages[:num])])
        return [{"role": "system", "content": text}, *messages[num:]]

    async def _sampled(self, most_tokens: int | None) -> Turn:
        """The next turn. Raises `Closed` where the window is full, and what the engine raises."""
        turn = await self._dialogue.turn(most_tokens)
        self.turns.append(turn)
        if turn.stop is StopReason.WINDOW:
            self.limit = "The policy's window is full."
            self.ended.set()
            raise Closed
        return turn
