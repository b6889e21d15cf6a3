"""One client for chat endpoints: the engine's, a judge's, a teacher's. Every answer is bounded in time, bytes and tokens."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.clients.answer import ChatAnswer as ChatAnswer
    from cod_lightning.clients.chat import ChatClient as ChatClient
    from cod_lightning.clients.failure import EndpointFailure as EndpointFailure

__getattr__ = lazily(
    __name__,
    {
        "answer": "ChatAnswer",
        "chat": "ChatClient",
        "failure": "EndpointFailure",
    },
)
