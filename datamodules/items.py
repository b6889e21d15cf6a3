"""The DataModule whose loaders yield sealed items."""

import asyncio
from functools import partial
from typing import Any

import lightning as L
import torch

from cod_lightning.contexts.base import ContextMechanism, Words
from cod_lightning.envs.base import TextEnv, Vocabulary, beside
from cod_lightning.errors import ConfigError, answering
from cod_lightning.lifecycles import Program
from cod_lightning.models.base import Policy
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.chat import Chat
from cod_lightning.training.stream import Sealed


class ItemDataModule(L.LightningDataModule):
    """A DataModule whose loaders are `SizedItems`."""

    env: TextEnv
    context: ContextMechanism
    program: Program
    _chat: Chat | None = None
    _sentences: tuple[str, ...] | None = None

    @property
    def learner(self) -> Any:
        """The module that is trained."""
        return self._run.lightning_module

    @property
    def _run(self) -> L.Trainer:
        assert self.trainer is not None, "the DataModule is not attached to a Trainer"
        return self.trainer

    @property
    def words(self) -> tuple[str, ...]:
        """The closed vocabulary of environment, context and program, in the order of the ids; empty for a language model."""
        words: tuple[str, ...] = ()
        for key, part, vocabulary in (
            ("data.env", self.env, beside(self.env, Vocabulary)),
            ("data.context", self.context, beside(self.context, Words)),
        ):
            refused = partial(ConfigError, key, type(part).__name__, remedy="`check` says what it breaks.")
            with answering(refused, "one whose words() gives a tuple, in the same order in every process"):
                if not isinstance(found := vocabulary.words(), tuple):
                    raise TypeError(f"a {type(found).__name__}")
                words += found
        return words + tuple(word for word in self.program.words() if words and word not in words)

    def words_for(self, policy: Policy) -> tuple[str, ...]:
        """What the policy's tokenizer is made of: the closed vocabulary, or the sentences where the policy reads those."""
        words = self.words
        if not policy.reads_sentences:
            return words
        if words:
            worded = beside(self.env, Vocabulary).words()
            key, part = ("data.env", self.env) if worded else ("data.context", self.context)
            expected = "one whose words() is empty, since the policy reads sentences"
            remedy = "Set data.env.protocol and data.context.protocol to natural."
            raise ConfigError(key, type(part).__name__, expected, remedy)
        if self._sentences is None:
            from cod_lightning.datamodules.sentences import sentences  # its players, which most policies do without

            self._sentences = sentences(self.env, self.context)
        return self._sentences

    @property
    def has_chat(self) -> bool:
        """Whether there is a tokenizer already."""
        return self._chat is not None

    @property
    def chat(self) -> Chat:
        """Tokenizer and chat template; there after `setup`."""
        assert self._chat is not None, "setup() has not run"
        return self._chat

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Open the seal; training batches move to the device, groups of lifecycles are records and stay."""
        item = batch.item if isinstance(batch, Sealed) else batch
        return item.to(device) if isinstance(item, Batch) else item


def check_alone() -> None:
    """Refuse a thread in which an event loop runs, as a notebook's does: episodes are played in loops of their own."""
    if asyncio._get_running_loop() is not None:
        remedy = "Write `await asyncio.to_thread(trainer.fit, module, data)`."
        raise ConfigError("trainer", "in a running event loop", "a thread without one, also in a notebook", remedy)
