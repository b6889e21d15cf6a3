"""Connect the Dots in one file: an agent that gets better at an environment from task to task, trained from nothing.

An agent lives through a *pack*: N tasks of one environment that share something hidden, here what four action codes mean. It
solves a task, rewrites its *context* (one line of text), solves the next task with it, and so on:

    solve 0 -> update 0 -> solve 1 -> update 1 -> ... -> solve N-1

Every arrow is an *episode*. The weights are trained so that this whole loop pays: an update is credited with the tasks that were
solved with what it wrote. Source: arXiv 2606.20002. Evidence is success that rises with the position of a task in packs that
training never drew, and stays flat when the context is hidden from the same policy.

Read from top to bottom: world, words, episode, policy, sampler, lifecycle, credit, loss, warm start, evaluation, main. This is plain
torch over `cod_lightning.envs`; the library does the same with language models, many processes, failures and resumed runs.

    python examples/one_file.py                       # a frozen lake
    python examples/one_file.py --world levers --rollouts 30 --seed 2
"""

import argparse
import copy
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cod_lightning.envs import TextEnv
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.types import Message, Pack, Role, Split, Task

# Letters in shapes: G packs, K siblings (lifecycles of one pack), E = 2N-1 episodes of a lifecycle (solves at even places,
# updates at odd ones), B rows, T new tokens, S tokens read so far, C channels, H heads, D channels of a head, V words.


@dataclass(frozen=True)
class Config:
    """Every number of a run; each is an option of the command line."""

    world: str = "lake"  # or levers, which learns in a third of the time
    seed: int = 1
    num_tasks: int = 4  # N, tasks of a pack
    packs: int = 32  # G, packs of a rollout
    siblings: int = 8  # K, lifecycles of each pack; each other's baseline
    rollouts: int = 60
    updates: int = 4  # optimizer updates on one rollout
    lr: float = 1e-3
    discount: float = 0.5  # of a task's reward in the return of the episode before; the paper averages instead
    warm_updates: int = 1500  # supervised updates on demonstrations, three packs each
    warm_lr: float = 3e-3
    eval_packs: int = 1024
    channels: int = 96
    layers: int = 2
    heads: int = 4


FORMAT_PENALTY = 0.1  # what a rewrite costs that cannot be read
MAX_NEW_TOKENS = 8  # of one response
CLIP = 0.2  # how far a token's ratio may move from 1 before the token no longer counts
MICRO_BATCH = 64  # rows of one forward and backward pass; changes memory and speed, not the gradient


# ---------------------------------------------------------------------------------------------------------------------------
# The world speaks text: `reset` and `step` return observations, the last one being the feedback on the task.


def make_world(name: str) -> TextEnv:
    """A world in fused words (`3=up` is one word): with facts of several tokens so small a policy learns no look-up."""
    if name == "lake":  # cross 3x3 tiles to the goal; which of four codes goes which way is hidden
        return FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")
    if name == "levers":  # pull the lever that gives the wanted colour, in two pulls; which gives which is hidden
        return Levers(protocol="compact")
    raise SystemExit(f"--world is {name!r}; expected lake or levers")


class Words:
    """A tokenizer with one token a word, and the layout of a dialogue: `<system> .. <user> .. <assistant> .. <end> <user> ..`"""

    def __init__(self, env: TextEnv) -> None:
        self.special = ("<pad>", "<end>", "<system>", "<user>", "<assistant>")
        self.list = [*self.special, "update", "<hints>", "</hints>", *dict.fromkeys(env.words())]
        self.ids = {word: i for i, word in enumerate(self.list)}
        self.pad, self.end = self.ids["<pad>"], self.ids["<end>"]

    def __len__(self) -> int:
        return len(self.list)

    def encode(self, text: str) -> list[int]:
        return [self.ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.list[i] for i in ids if i != self.end)


# ---------------------------------------------------------------------------------------------------------------------------
# An episode is one dialogue, and one row of tokens. What was sampled is what is trained on: ids are appended and never made
# from text again, since another tokenisation of the same text would have other log-probs.


@dataclass(eq=False)
class Episode:
    """All turns of one task, or one rewrite of the context."""

    words: Words
    messages: list[Message] = field(default_factory=list)  # the same as text, for scripted players
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)  # which tokens are the policy's own
    logprobs: list[float] = field(default_factory=list)  # of those when they were sampled (nats), 0 elsewhere
    reward: float = 0.0
    success: bool = False  # whether the task was solved, or the rewrite can be read
    after: str = ""  # the world's feedback on a task, or the rewritten context

    def ask(self, **messages: str) -> None:
        """Append messages by role, and the mark after which the policy answers."""
        self.messages += [Message(Role(role), text) for role, text in messages.items()]
        text = " ".join(f"<{role}> {text}" for role, text in messages.items())
        self._append(self.words.encode(f"{text} <assistant>"), sampled=False)

    def answer(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> str:
        """Append a response, as text too."""
        self._append(ids, sampled=True, logprobs=logprobs)
        text = self.words.decode(ids)
        self.messages.append(Message(Role.ASSISTANT, text))
        return text

    def _append(self, ids: Sequence[int], *, sampled: bool, logprobs: Sequence[float] | None = None) -> None:
        self.ids += ids
        self.sampled += [sampled] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)


Respond = Callable[[Sequence[Episode]], list[str]]
"""Appends a response to every one of these episodes and returns their texts; a policy or a scripted player."""


# ---------------------------------------------------------------------------------------------------------------------------
# The policy is a small Qwen3: RMSNorm, rotary positions, normalised queries and keys, SwiGLU, tied embeddings.


class Memory:
    """Keys and values of one layer: [B H S D] each, the token at position s in column s.

    A row that has fewer new tokens than another is padded on the right. What its padding writes stands behind its last token, where
    the causal mask hides it until the next tokens overwrite it, so that position alone decides what is seen.
    """

    def __init__(self) -> None:
        self.keys, self.values = torch.empty(0), torch.empty(0)

    def add(self, k: Float[Tensor, "B H T D"], v: Float[Tensor, "B H T D"], at: Int[Tensor, "B T"]) -> None:
        """Write new keys and values at these positions."""
        if not self.keys.numel():
            self.keys = self.values = k[:, :, :0]
        if (more := int(at.max()) + 1 - self.keys.shape[2]) > 0:
            self.keys, self.values = (F.pad(kept, (0, 0, 0, more)) for kept in (self.keys, self.values))
        rows = torch.arange(len(at))[:, None]
        self.keys[rows, :, at] = k.transpose(1, 2)
        self.values[rows, :, at] = v.transpose(1, 2)

    def keep(self, rows: Int[Tensor, " b"]) -> None:
        """Forget all other dialogues."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what came in."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, hidden = heads, 8 * channels // 3
        self.attention_norm, self.mlp_norm = nn.RMSNorm(channels, eps=1e-6), nn.RMSNorm(channels, eps=1e-6)
        self.q_norm, self.k_norm = (nn.RMSNorm(channels // heads, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(channels, channels, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(channels, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, channels, bias=False)

    def forward(self, x: Float[Tensor, "B T C"], at: Int[Tensor, "B T"], memory: Memory | None) -> Float[Tensor, "B T C"]:
        y = self.attention_norm(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        q, k, v = rotated(self.q_norm(q), at).transpose(1, 2), rotated(self.k_norm(k), at).transpose(1, 2), v.transpose(1, 2)
        if memory is None:  # whole rows, padded on the right: the causal mask is all they need
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            memory.add(k, v, at)
            seen = torch.arange(memory.keys.shape[2]) <= at[:, None, :, None]  # [B 1 T S]
            y = F.scaled_dot_product_attention(q, memory.keys, memory.values, attn_mask=seen)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Float[Tensor, "B T H D"], at: Int[Tensor, "B T"]) -> Float[Tensor, "B T H D"]:
    """Each pair of channels (i, i + D/2) turned by position * 10000^(-2i/D)."""
    half = x.shape[-1] // 2
    angle = at[:, :, None, None] * 10_000.0 ** (-torch.arange(half) / half)
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], dim=-1)


class Policy(nn.Module):
    """A causal language model over `Words`."""

    def __init__(self, num_words: int, channels: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_words, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(channels, eps=1e-6)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.5 * channels**-0.5)

    def forward(
        self, ids: Int[Tensor, "B T"], at: Int[Tensor, "B T"], memories: Sequence[Memory] | None = None
    ) -> Float[Tensor, "B T C"]:
        """Hidden states behind these tokens at these positions, of rows whose earlier tokens the memories hold."""
        x = self.embed(ids)
        for i, block in enumerate(self.blocks):
            x = block(x, at, memories and memories[i])
        return self.norm(x)

    def scores(self, hidden: Float[Tensor, "n C"], temperature: float = 1.0) -> Float[Tensor, "n V"]:
        """Log-probabilities (nats) of the next word."""
        return torch.log_softmax(hidden @ self.embed.weight.T / temperature, dim=-1)

    def logprobs(self, ids: Int[Tensor, "B T"], sampled: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Of every sampled token given the tokens before it, 0 elsewhere; scores are made for those alone."""
        hidden = self(ids, torch.arange(ids.shape[1]).expand_as(ids))
        row, column = sampled.nonzero(as_tuple=True)
        scores = self.scores(hidden[row, column - 1])
        found = scores.gather(1, ids[row, column][:, None]).squeeze(1)
        return torch.zeros(ids.shape).index_put((row, column), found)


# ---------------------------------------------------------------------------------------------------------------------------
# Rollout: all lifecycles side by side, one batched forward pass for each token, nothing read twice.


class Sampler:
    """Lets a policy respond. Keys and values stay from turn to turn, so that a turn reads its new tokens only."""

    def __init__(self, policy: Policy, words: Words, seed: int, temperature: float = 1.0) -> None:
        self.policy, self.words, self.temperature = policy, words, temperature
        self.generator = torch.Generator().manual_seed(seed)
        self.held: dict[Episode, int] = {}  # how many tokens of each dialogue the memories hold, in the order of their rows
        self.memories: list[Memory] = []

    @torch.no_grad()
    def __call__(self, episodes: Sequence[Episode]) -> list[str]:
        if episodes[0] not in self.held:  # other dialogues begin
            self.held, self.memories = dict.fromkeys(episodes, 0), [Memory() for _ in self.policy.blocks]
        elif len(episodes) < len(self.held):  # some tasks have ended
            place = {episode: row for row, episode in enumerate(self.held)}
            for memory in self.memories:
                memory.keep(torch.tensor([place[episode] for episode in episodes]))
            self.held = {episode: self.held[episode] for episode in episodes}

        # The first pass reads what is new in each dialogue: the last sampled token, which no pass has read yet, and the prompt.
        new = [torch.tensor(episode.ids[read:]) for episode, read in self.held.items()]
        start, length = torch.tensor(list(self.held.values())), torch.tensor([len(ids) for ids in new])
        ids = nn.utils.rnn.pad_sequence(new, batch_first=True, padding_value=self.words.pad)
        at = start[:, None] + torch.arange(ids.shape[1])
        hidden = self.policy(ids, at, self.memories)[torch.arange(len(ids)), length - 1]

        tokens, logprobs, ended = [], [], torch.zeros(len(ids), dtype=torch.bool)
        at = start + length
        for _ in range(MAX_NEW_TOKENS):
            scores = self.policy.scores(hidden, self.temperature)
            token = torch.multinomial(scores.exp(), 1, generator=self.generator)
            tokens.append(token)
            logprobs.append(scores.gather(1, token))
            ended |= token.squeeze(1) == self.words.end
            if ended.all():
                break
            # Rows that have ended go along: their tokens are cut off below, and the next turn overwrites their columns.
            hidden = self.policy(token, at[:, None], self.memories).squeeze(1)
            at = at + 1

        texts = []
        rows = zip(episodes, torch.cat(tokens, 1).tolist(), torch.cat(logprobs, 1).tolist(), strict=True)
        for episode, own, own_logprobs in rows:
            count = own.index(self.words.end) + 1 if self.words.end in own else len(own)
            self.held[episode] = len(episode.ids) + count - 1  # all but the last one was read
            texts.append(episode.answer(own[:count], own_logprobs[:count]))
        return texts


def solve(
    respond: Respond, words: Words, envs: Sequence[TextEnv], tasks: Sequence[Task], contexts: Sequence[str]
) -> list[Episode]:
    """One task in each environment, all side by side."""
    episodes = [Episode(words) for _ in tasks]
    for env, task, context, episode in zip(envs, tasks, contexts, episodes, strict=True):
        observation, _ = env.reset(options={"task": task})
        episode.ask(system=f"{env.rules} {context}".strip(), user=observation)
    going = list(zip(envs, episodes, strict=True))
    while going:
        texts = respond([episode for _, episode in going])
        unfinished = []
        for (env, episode), text in zip(going, texts, strict=True):
            observation, reward, terminated, truncated, _ = env.step(text)
            if terminated or truncated:
                episode.reward, episode.success, episode.after = reward, env.success, observation
            else:
                episode.ask(user=observation)
                unfinished.append((env, episode))
        going = unfinished
    return episodes


def rewrite(respond: Respond, words: Words, solved: Sequence[Episode], contexts: Sequence[str]) -> list[Episode]:
    """The contexts rewritten, each from its old text and the feedback on the task; one that cannot be read leaves the old one."""
    episodes = [Episode(words) for _ in solved]
    for before, context, episode in zip(solved, contexts, episodes, strict=True):
        episode.ask(system=f"update {context}".strip(), user=before.after)
    for context, episode, text in zip(contexts, episodes, respond(episodes), strict=True):
        # No markup within: a context that spells `<user>` could forge a message in every later task.
        written = re.fullmatch(r"[^<]*<hints> ([^<]+) </hints>", text)
        episode.success, episode.after = written is not None, written[1] if written else context
        episode.reward = 0.0 if written else -FORMAT_PENALTY
    return episodes


def live(
    respond: Respond, words: Words, env: TextEnv, packs: Sequence[Pack], blanked: bool = False
) -> list[list[Episode]]:
    """A lifecycle through each pack: [B][E] episodes. Blanked, no task is shown what was written; the same policy otherwise."""
    envs = [copy.deepcopy(env) for _ in packs]
    contexts = [""] * len(packs)
    lives: list[list[Episode]] = [[] for _ in packs]
    for n in range(len(packs[0])):
        shown = [""] * len(packs) if blanked else contexts
        solved = solve(respond, words, envs, [pack.tasks[n] for pack in packs], shown)
        played = [solved]
        if n + 1 < len(packs[0]):  # nothing comes after the last task that could use a context
            played.append(rewrite(respond, words, solved, contexts))
            contexts = [episode.after for episode in played[-1]]
        for life, *episodes in zip(lives, *played, strict=True):
            life += episodes
    return lives


# ---------------------------------------------------------------------------------------------------------------------------
# Credit: what came of an episode, compared with the same episode of the siblings.


def returns_of(rewards: Float[Tensor, "G K E"], discount: float) -> Float[Tensor, "G K E"]:
    """An episode's own reward, and those of the tasks after it, each `discount` times the one before.

    A solve's list is [x_j, x_(j+1), ...], an update's [z_j, x_(j+1), ...]: its format reward, and what was solved with what it wrote.
    Rewards of other updates are in neither.
    """
    returns = torch.zeros_like(rewards)
    later = torch.zeros_like(rewards[..., 0])
    for e in reversed(range(rewards.shape[-1])):
        returns[..., e] = rewards[..., e] + discount * later
        if e % 2 == 0:
            later = returns[..., e]
    return returns


def advantages_of(
    rewards: Float[Tensor, "G K E"], num_tokens: Int[Tensor, "G K E"], discount: float
) -> Float[Tensor, "G K E"]:
    """Return minus the mean return of the siblings: one baseline for each pack, kind of episode and position.

    Not divided by a standard deviation: a pack in which the siblings hardly differ has little to say.
    """
    returns = returns_of(rewards.double(), discount)
    return balanced(returns - returns.mean(dim=1, keepdim=True), num_tokens)


def balanced(advantages: Float[Tensor, "G K E"], num_tokens: Int[Tensor, "G K E"]) -> Float[Tensor, "G K E"]:
    """s exp(s / T) in place of s where negative advantages outweigh positive ones, token by token (adaptive RED).

    Failures are longer than successes, so their tokens dominate the loss and push probability anywhere but where it was. T in
    [0.8, 100] makes sum_e s_e exp(s_e / T) n_e about 0, by bisection, since that sum falls as T rises.
    """
    weighed = advantages * num_tokens
    if weighed.sum() >= -1e-6 * weighed.abs().sum():  # with equal lengths the sum is rounding noise of either sign
        return advantages
    low, high = 0.8, 100.0
    while high - low >= 0.05:
        middle = (low + high) / 2
        if (weighed * torch.exp(advantages / middle)).sum() > 0:
            low = middle
        else:
            high = middle
    return advantages * torch.exp(advantages * 2 / (low + high))


# ---------------------------------------------------------------------------------------------------------------------------
# Loss and update.


def policy_loss(
    logprobs: Float[Tensor, "B T"],
    behaviour: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B 1"],
    sampled: Bool[Tensor, "B T"],
    num_tokens: int,
) -> Float[Tensor, ""]:
    """- sum_t keep_t A_t log p_t / num_tokens, with the clip as a mask (REC-OneSide-NoIS, arXiv 2509.24203).

    A token counts until the policy has moved by more than CLIP from the one that sampled it, in the direction in which its
    advantage pushes. With one update on a rollout no token is masked, and this is REINFORCE with a group's baseline.
    """
    ratio = (logprobs.detach() - behaviour).exp()
    keep = sampled & torch.where(advantages > 0, ratio <= 1 + CLIP, ratio >= 1 - CLIP)
    return -(advantages * logprobs)[keep].sum() / num_tokens


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, episodes: Sequence[Episode], advantages: Sequence[float]
) -> float:
    """One optimizer update; the mean distance of log-probs (nats) from those at sampling, before it.

    An episode's advantage is that of every token sampled in it. Without one there is no gradient, so its row is left out, but its
    tokens count in the mean: else a rollout of few signals would take steps as large as one of many.
    """
    num_tokens = sum(sum(episode.sampled) for episode in episodes)
    rows = [pair for pair in zip(episodes, advantages, strict=True) if abs(pair[1]) > 1e-6]
    rows.sort(key=lambda pair: len(pair[0].ids))  # of like length together: little is padding
    gap, num_compared = 0.0, 0
    optimizer.zero_grad()
    for first in range(0, len(rows), MICRO_BATCH):
        part, own = zip(*rows[first : first + MICRO_BATCH], strict=True)
        ids, sampled, behaviour = (
            nn.utils.rnn.pad_sequence([torch.tensor(row) for row in columns], batch_first=True)
            for columns in zip(*((episode.ids, episode.sampled, episode.logprobs) for episode in part), strict=True)
        )
        logprobs = policy.logprobs(ids, sampled)
        policy_loss(logprobs, behaviour, torch.tensor(own)[:, None], sampled, num_tokens).backward()
        gap += float((logprobs.detach() - behaviour).abs().sum())
        num_compared += int(sampled.sum())
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return gap / max(1, num_compared)


# ---------------------------------------------------------------------------------------------------------------------------
# Warm start. A policy with random weights cannot answer at all, so nothing could be reinforced.


def demonstrated(words: Words, env: TextEnv, pack: Pack, rng: random.Random) -> list[Episode]:
    """Each episode of a pack by a scripted teacher, with a context that it makes up: true in part, junk, or none.

    The teacher plays sensibly, mostly trusts its context, and notes each fact rightly only half of the time: the protocol, and the skill
    in weak form. That writing helps later tasks is in no episode; training has to find it.
    """
    teacher = env.demonstrator(pack)

    def act(episodes: Sequence[Episode]) -> list[str]:
        return [one.answer([*words.encode(teacher.act(one.messages, rng)), words.end]) for one in episodes]

    def note(episodes: Sequence[Episode]) -> list[str]:
        notes = (f"<hints> {teacher.note(one.messages, rng)} </hints>" for one in episodes)
        return [one.answer([*words.encode(text), words.end]) for one, text in zip(episodes, notes, strict=True)]

    contexts = [teacher.context(rng) for _ in pack.tasks]
    solved = solve(act, words, [copy.deepcopy(env) for _ in pack.tasks], pack.tasks, contexts)
    return solved + rewrite(note, words, solved, contexts)


def warm_start(config: Config, policy: Policy, words: Words, env: TextEnv) -> None:
    """Supervised learning on demonstrations, which is `update` once more.

    What a script says has log-prob 0 and gets the advantage 1, so no ratio is above 1, no token is masked, and the loss is cross-entropy.
    """
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    rng, start = random.Random(config.seed), time.perf_counter()
    for number in range(config.warm_updates):
        rate = config.warm_lr * min((number + 1) / 50, 1 - number / config.warm_updates)
        for group in optimizer.param_groups:
            group["lr"] = rate
        packs = draw(config, env, Split.TRAIN, 3 * number, 3)
        episodes = [episode for pack in packs for episode in demonstrated(words, env, pack, rng)]
        gap = update(policy, optimizer, episodes, [1.0] * len(episodes))
        if number % 250 == 249:
            seconds = time.perf_counter() - start
            print(f"warm start {number + 1:4d}/{config.warm_updates}  loss {gap:.3f}  {seconds:.0f} s", flush=True)


# ---------------------------------------------------------------------------------------------------------------------------
# Training, evaluation, and the table.


def draw(config: Config, env: TextEnv, split: Split, first: int, count: int) -> list[Pack]:
    """Packs by number. A pack is a function of split and number, and nothing that is hidden in one split is in another."""
    numbers = range(first, first + count)
    return [env.sample_pack(split=split, index=i, num_tasks=config.num_tasks, seed=config.seed) for i in numbers]


def train(config: Config, policy: Policy, words: Words, env: TextEnv) -> None:
    """CoD-Train: roll out lifecycles, credit their episodes, update."""
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    respond, start = Sampler(policy, words, seed=config.seed), time.perf_counter()
    num_updates, done = config.rollouts * config.updates, 0
    for number in range(config.rollouts):
        packs = draw(config, env, Split.TRAIN, number * config.packs, config.packs)
        lives = live(respond, words, env, [pack for pack in packs for _ in range(config.siblings)])

        def table(value: Callable[[Episode], float], lives: list[list[Episode]] = lives) -> Float[Tensor, "G K E"]:
            return torch.tensor([[value(one) for one in life] for life in lives]).unflatten(0, (config.packs, -1))

        advantages = advantages_of(
            table(lambda one: one.reward), table(lambda one: sum(one.sampled)), config.discount
        ).flatten(0, 1)
        # All siblings of a pack are in one update, and all updates are made of the same policy's samples.
        gaps = []
        for part in torch.arange(len(lives)).chunk(config.updates):
            for group in optimizer.param_groups:
                group["lr"] = config.lr * (1 - 0.8 * done / num_updates)
            episodes = [one for i in part.tolist() for one in lives[i]]
            gaps.append(update(policy, optimizer, episodes, advantages[part].flatten().tolist()))
            done += 1
        if number % 5 == 4:
            success = table(lambda one: one.success).double().mean(dim=(0, 1))
            print(
                f"rollout {number + 1:3d}/{config.rollouts}  success {percent(success[0::2])}  readable {success[1::2].mean():.2f}  "
                f"log-prob gap {gaps[0]:.0e}  {time.perf_counter() - start:.0f} s",
                flush=True,
            )


def evaluate(
    config: Config, policy: Policy, words: Words, env: TextEnv, *, temperature: float = 1.0, blanked: bool = False
) -> Float[Tensor, " N"]:
    """Success by position in held-out packs, the same ones and the same noise in every call."""
    packs = draw(config, env, Split.TEST, 0, config.eval_packs)
    lives = live(Sampler(policy, words, config.seed, temperature), words, env, packs, blanked)
    return torch.tensor([[one.success for one in life[0::2]] for life in lives]).double().mean(dim=0)


def percent(success: Float[Tensor, " N"]) -> str:
    return " ".join(f"{share:.2f}".removeprefix("0") for share in success.tolist())


def run(config: Config) -> dict[str, Float[Tensor, " N"]]:
    """Warm start, training, and the rows of the table."""
    torch.set_num_threads(1)  # matrices so small are slower on two
    torch.manual_seed(config.seed)
    env = make_world(config.world)
    words = Words(env)
    policy = Policy(len(words), config.channels, config.layers, config.heads)
    print(f"{sum(weight.numel() for weight in policy.parameters()):,} weights, {len(words)} words", flush=True)
    warm_start(config, policy, words, env)
    rows = {
        "warm start": evaluate(config, policy, words, env),
        "warm start, T=0.3": evaluate(config, policy, words, env, temperature=0.3),
    }
    train(config, policy, words, env)
    rows |= {
        "trained": evaluate(config, policy, words, env),
        "trained, context blanked": evaluate(config, policy, words, env, blanked=True),
    }
    (life,) = live(Sampler(policy, words, config.seed), words, env, draw(config, env, Split.TEST, 0, 1))
    print("\nWhat it wrote in an unseen pack:")
    for n, (solved, updated) in enumerate(zip(life[0::2], life[1::2], strict=False)):
        print(f"  task {n}: {solved.after:40s} -> {updated.after}")
    return rows


def main() -> None:
    """Read the options, run, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for one in fields(Config):
        parser.add_argument(f"--{one.name}", type=type(one.default), default=one.default)
    config = Config(**vars(parser.parse_args()))
    rows = run(config)
    print(f"\nSuccess by position, {config.eval_packs} held-out packs:")
    for name, success in rows.items():
        print(f"{name:28s}{percent(success)}")


if __name__ == "__main__":
    main()
