"""Connect the Dots in one file: an agent that gets better at an environment from task to task, trained from nothing.

An agent lives through a *pack*: N tasks of one environment that share something hidden, here what four action codes mean. It
solves a task, rewrites its *context* (one line of text), solves the next task with that context, and so on:

    solve 0 -> update 0 -> solve 1 -> update 1 -> ... -> solve N-1

Each of these is an *episode*. The weights are trained so that the whole loop pays: an update is credited with the tasks that were
solved with what it wrote. Source: arXiv 2606.20002. The evidence is success that rises with a task's position in packs that
training never drew, and stays flat when the context is hidden from the same policy:

    1,024 held-out packs         seed 1            seed 2            seed 3
    warm start, T=0.3        .39 .61 .66 .73   .39 .59 .65 .70   .43 .65 .73 .76
    trained                  .57 .78 .85 .89   .54 .75 .82 .84   .58 .78 .87 .89
    trained, context blanked .57 .57 .53 .54   .54 .54 .57 .53   .58 .57 .59 .58

Intervals (95 % over packs) are +- .03 at most. A run takes three minutes of one CPU core.

    python examples/one_file.py
    python examples/one_file.py --world levers --warm_updates 800 --rollouts 30

Read from top to bottom. This is plain torch over `cod_lightning.envs`; the library adds language models, fast engines, many
processes, failures, resumption, controls and reports. `tests/test_one_file.py` holds the two to the same numbers.
"""

import argparse
import copy
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW

from cod_lightning.envs.base import Players, TextEnv, Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.types import Message, Pack, Role, Split, Task

# Types are named by their shapes: G packs, K siblings (lifecycles of one pack), N tasks of a pack, E = 2N-1 episodes of a lifecycle
# (solves at even places, updates at odd ones); B rows, T tokens, C channels, H heads of D channels, V words.
GKE, N, B1, BC, BV = (Float[Tensor, shape] for shape in ("G K E", "N", "B 1", "B C", "B V"))
BT, BTC, BTHD = Shaped[Tensor, "B T"], Float[Tensor, "B T C"], Float[Tensor, "B T H D"]


@dataclass(frozen=True)
class Config:
    """The numbers of a run; each is an option of the command line."""

    world: str = "lake"
    seed: int = 1
    num_tasks: int = 4  # N
    packs: int = 32  # G, of one rollout
    siblings: int = 8  # K, each other's baseline
    rollouts: int = 40
    updates: int = 4  # optimizer updates on one rollout
    lr: float = 1e-3
    discount: float = 0.5  # of the next task's reward in a return; the paper averages instead
    warm_updates: int = 1000  # supervised updates before, on the demonstrations of three packs each
    warm_lr: float = 3e-3
    eval_packs: int = 1024
    channels: int = 96
    layers: int = 2
    heads: int = 4


FORMAT_PENALTY = 0.1  # cost of a rewrite that cannot be read
MAX_NEW_TOKENS = 8  # of one response
PAD, END = 0, 1  # ids of `<pad>` and `<end>`
CLIP = 0.2  # how far a token's ratio may move from 1 before the token no longer counts
BETAS = (0.9, 0.95)  # of AdamW
MICRO_BATCH = 64  # rows of one forward and backward pass; changes memory and speed, not the gradient


# ------------------------------------------------------------------ world: text in, text out
class World:
    """An environment that speaks in fused words such as `3=up`, its packs, and a tokenizer with one token a word.

    So small a policy does not learn to look up a fact that takes several tokens.
    """

    def __init__(self, config: Config) -> None:
        if config.world == "lake":  # walk over 3x3 tiles to the goal; which of four codes goes which way is hidden
            self.env: TextEnv = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")
        elif config.world == "levers":  # get the wanted colour in two pulls; which lever gives which colour is hidden
            self.env = Levers(protocol="compact")
        else:
            raise SystemExit(f"--world is {config.world!r}; expected lake or levers")
        self.num_tasks, self.seed = config.num_tasks, config.seed
        markup = ("<pad>", "<end>", "<system>", "<user>", "<assistant>", "<hints>", "</hints>", "update")
        self.words = [*markup, *dict.fromkeys(beside(self.env, Vocabulary).words())]
        self.ids = {word: i for i, word in enumerate(self.words)}

    def packs(self, split: Split, first: int, count: int) -> list[Pack]:
        """Packs by number. Splits share no lake, and no order of levers with its goals; all 24 hidden orders occur in each."""
        numbers = range(first, first + count)
        return [self.env.sample_pack(split=split, index=i, num_tasks=self.num_tasks, seed=self.seed) for i in numbers]

    def encode(self, text: str) -> list[int]:
        return [self.ids[word] for word in text.split()]


# ------------------------------------------------------------------ episode: one dialogue, one row of tokens
@dataclass(eq=False)
class Episode:
    """All turns of one task, or one rewrite of the context: `<system> .. <user> .. <assistant> .. <end> <user> .. <assistant> ..`

    Sampled ids are kept as they are and never made from text again: the same text in other tokens would have another log-prob.
    """

    world: World
    messages: list[Message] = field(default_factory=list)  # the dialogue as text, for scripted players
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)  # the action mask: which tokens are the policy's
    logprobs: list[float] = field(default_factory=list)  # of those when they were sampled (nats); 0 elsewhere
    reward: float = 0.0
    success: bool = False  # the task was solved, or the rewrite can be read
    after: str = ""  # feedback on the task, or the new context

    def ask(self, **messages: str) -> None:
        """Append messages, by role, and the mark that asks for a response."""
        self.messages += [Message(Role(role), text) for role, text in messages.items()]
        ids = self.world.encode(" ".join(f"<{role}> {text}" for role, text in messages.items()) + " <assistant>")
        self.ids, self.sampled = self.ids + ids, self.sampled + [False] * len(ids)
        self.logprobs = self.logprobs + [0.0] * len(ids)

    def answer(self, ids: list[int], logprobs: list[float] | None = None) -> str:
        """Append a response; its text. A script's log-probs are 0: it is sure of what it says."""
        self.ids, self.sampled = self.ids + ids, self.sampled + [True] * len(ids)
        self.logprobs = self.logprobs + (logprobs or [0.0] * len(ids))
        text = " ".join(self.world.words[i] for i in ids if i != END)
        self.messages.append(Message(Role.ASSISTANT, text))
        return text


Respond = Callable[[list[Episode]], list[str]]
"""Appends a response to each of these episodes and returns the texts: a policy, or a scripted player."""


# ------------------------------------------------------------------ policy: a small Qwen3 with tied embeddings
class Cache:
    """Keys and values of one layer, [B H S D] each, those of the token at position s in column s.

    Rows are padded on the right. What padding writes stands behind a row's last token, hidden until the next tokens overwrite it.
    """

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0)

    def add(self, k: BTHD, v: BTHD, at: BT) -> None:
        if not self.keys.numel():
            self.keys = self.values = k.transpose(1, 2)[:, :, :0]
        if (
            more := int(at.max()) + 1 - self.keys.shape[2]
        ) > 0:  # columns to spare, so that few tokens copy all there is
            self.keys, self.values = (F.pad(kept, (0, 0, 0, more + 8)) for kept in (self.keys, self.values))
        rows = torch.arange(len(at))[:, None]
        self.keys[rows, :, at], self.values[rows, :, at] = k, v

    def keep(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]


class Block(nn.Module):
    """Attention with normalised queries and keys, then SwiGLU; each adds to its input."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, hidden = heads, 8 * channels // 3
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(channels, eps=1e-6) for _ in range(2))
        self.q_norm, self.k_norm = (nn.RMSNorm(channels // heads, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(channels, channels, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(channels, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, channels, bias=False)

    def forward(self, x: BTC, at: BT, cache: Cache | None) -> BTC:
        y = self.attention_norm(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        q, k = rotated(self.q_norm(q), at).transpose(1, 2), rotated(self.k_norm(k), at)
        if cache is None:  # whole rows, padded on the right: the causal mask is all they need
            y = F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        else:
            cache.add(k, v, at)
            seen = torch.arange(cache.keys.shape[2]) <= at[:, None, :, None]  # [B 1 T S]
            y = F.scaled_dot_product_attention(q, cache.keys, cache.values, attn_mask=seen)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: BTHD, at: BT) -> BTHD:
    """Rotary positions: channels i and i + D/2 are turned by position * 10000^(-2i/D)."""
    half = x.shape[-1] // 2
    angle = at[:, :, None, None] * 10_000.0 ** (-torch.arange(half) / half)
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], dim=-1)


class Policy(nn.Module):
    """A causal language model over the world's words."""

    def __init__(self, world: World, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(world.words), config.channels)
        self.blocks = nn.ModuleList(Block(config.channels, config.heads) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.channels, eps=1e-6)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.5 * config.channels**-0.5)

    def forward(self, ids: BT, at: BT, caches: list[Cache] | None = None) -> BTC:
        """Hidden states of tokens at these positions, after those that the caches hold."""
        x = self.embed(ids)
        for i, block in enumerate(self.blocks):
            x = block(x, at, caches and caches[i])
        return self.norm(x)

    def scores(self, hidden: BC, temperature: float = 1.0) -> BV:
        """Log-probabilities (nats) of the next word."""
        return torch.log_softmax(hidden @ self.embed.weight.T / temperature, dim=-1)

    def logprobs(self, ids: BT, sampled: BT) -> BT:
        """Log-probability (nats) of each sampled token given the tokens before it; 0 elsewhere, where no scores are computed."""
        hidden = self(ids, torch.arange(ids.shape[1]).expand_as(ids))
        row, column = sampled.nonzero(as_tuple=True)
        found = self.scores(hidden[row, column - 1]).gather(1, ids[row, column][:, None]).squeeze(1)
        return torch.zeros(ids.shape).index_put((row, column), found)


# ------------------------------------------------------------------ rollout: all lifecycles side by side
class Sampler:
    """A policy that responds, to all dialogues in one batch. Keys and values stay: a turn reads its new tokens only."""

    def __init__(self, policy: Policy, seed: int, temperature: float = 1.0) -> None:
        self.policy, self.temperature = policy, temperature
        self.generator = torch.Generator().manual_seed(seed)
        self.num_read: dict[Episode, int] = {}  # tokens of each dialogue in the caches, in the order of their rows
        self.caches: list[Cache] = []

    @torch.no_grad()
    def __call__(self, episodes: list[Episode]) -> list[str]:
        if episodes[0] not in self.num_read:  # other dialogues begin
            self.num_read, self.caches = dict.fromkeys(episodes, 0), [Cache() for _ in self.policy.blocks]
        elif len(episodes) < len(self.num_read):  # some have ended
            row = {episode: row for row, episode in enumerate(self.num_read)}
            self.num_read = {episode: self.num_read[episode] for episode in episodes}
            for cache in self.caches:
                cache.keep(torch.tensor([row[episode] for episode in episodes]))

        # First comes what is new in each dialogue: the last sampled token, which was never fed back, and the prompt.
        new = [torch.tensor(episode.ids[read:]) for episode, read in self.num_read.items()]
        start, length = torch.tensor(list(self.num_read.values())), torch.tensor([len(ids) for ids in new])
        ids = pad_sequence(new, batch_first=True, padding_value=PAD)
        hidden = self.policy(ids, start[:, None] + torch.arange(ids.shape[1]), self.caches)
        hidden = hidden[torch.arange(len(ids)), length - 1]

        drawn, logprobs, ended = [], [], torch.zeros(len(ids), dtype=torch.bool)
        for step in range(MAX_NEW_TOKENS):
            scores = self.policy.scores(hidden, self.temperature)
            drawn.append(torch.multinomial(scores.exp(), 1, generator=self.generator))
            logprobs.append(scores.gather(1, drawn[-1]))
            ended |= drawn[-1].squeeze(1) == END
            if ended.all():
                break
            # Responses that have ended go along: their tokens are cut off below, their columns overwritten by the next turn.
            hidden = self.policy(drawn[-1], (start + length + step)[:, None], self.caches).squeeze(1)

        texts = []
        rows = zip(episodes, torch.cat(drawn, 1).tolist(), torch.cat(logprobs, 1).tolist(), strict=True)
        for episode, own, values in rows:
            count = own.index(END) + 1 if END in own else len(own)
            self.num_read[episode] = len(episode.ids) + count - 1
            texts.append(episode.answer(own[:count], values[:count]))
        return texts


def solve(respond: Respond, world: World, envs: list[TextEnv], tasks: list[Task], contexts: list[str]) -> list[Episode]:
    """One task in each environment, with its context."""
    episodes = [Episode(world) for _ in tasks]
    for env, task, context, episode in zip(envs, tasks, contexts, episodes, strict=True):
        observation, _ = env.reset(options={"task": task})
        episode.ask(system=f"{env.rules} {context}".strip(), user=observation)
    going = list(zip(envs, episodes, strict=True))
    while going:
        texts, unfinished = respond([episode for _, episode in going]), []
        for (env, episode), text in zip(going, texts, strict=True):
            observation, reward, terminated, truncated, _ = env.step(text)
            if terminated or truncated:  # the last observation is the feedback
                episode.reward, episode.success, episode.after = reward, env.success, observation
            else:
                episode.ask(user=observation)
                unfinished.append((env, episode))
        going = unfinished
    return episodes


def rewrite(respond: Respond, world: World, solved: list[Episode], contexts: list[str]) -> list[Episode]:
    """A new context for each, from the old one and the feedback on the task; one that cannot be read leaves the old one."""
    episodes = [Episode(world) for _ in solved]
    for before, context, episode in zip(solved, contexts, episodes, strict=True):
        episode.ask(system=f"update {context}".strip(), user=before.after)
    for context, episode, text in zip(contexts, episodes, respond(episodes), strict=True):
        # Markup is refused: a context that spells `<user>` would forge a message in every later task.
        written = re.fullmatch(r"[^<]*<hints> ([^<]+) </hints>", text)
        episode.success, episode.after = written is not None, written[1] if written else context
        episode.reward = 0.0 if written else -FORMAT_PENALTY
    return episodes


def live(respond: Respond, world: World, packs: list[Pack], *, blanked: bool = False) -> list[list[Episode]]:
    """A lifecycle through each pack, [B][E]. Blanked, contexts are written and no task is shown one."""
    envs, lives = [copy.deepcopy(world.env) for _ in packs], [[] for _ in packs]
    contexts = nothing = [""] * len(packs)
    for n in range(len(packs[0])):
        solved = solve(respond, world, envs, [pack.tasks[n] for pack in packs], nothing if blanked else contexts)
        played = [solved]
        if n + 1 < len(packs[0]):  # no task comes after the last one that could use a context
            played.append(rewrite(respond, world, solved, contexts))
            contexts = [episode.after for episode in played[-1]]
        for life, *episodes in zip(lives, *played, strict=True):
            life += episodes
    return lives


# ------------------------------------------------------------------ credit: what came of an episode, against its siblings
def advantages_of(rewards: GKE, num_tokens: GKE, discount: float) -> GKE:
    """Return minus the siblings' mean return, one baseline for each pack, kind of episode and position; then balanced.

    A return sums the episode's own reward and those of the tasks after it, each weighed `discount` times as much as the one before:
    [x_j, x_(j+1), ...] for solve j and [z_j, x_(j+1), ...] for update j, its format reward and the tasks solved with what it wrote.
    """
    returns = rewards.double().clone()
    later = torch.zeros_like(returns[..., 0])
    for e in reversed(range(returns.shape[-1])):
        returns[..., e] += discount * later
        if e % 2 == 0:
            later = returns[..., e]
    return balanced(returns - returns.mean(dim=1, keepdim=True), num_tokens)


def balanced(advantages: GKE, num_tokens: GKE) -> GKE:
    """Adaptive RED: s exp(s / T) in place of s where tokens of negative advantage outweigh the others.

    Pushing down does not say where probability should go. T in [0.8, 100] makes the sum of s exp(s / T) n about 0, n being an
    episode's sampled tokens; the sum falls as T rises, so T is found by bisection.
    """
    weighed = advantages * num_tokens
    if weighed.sum() >= -1e-6 * weighed.abs().sum():  # with equal lengths the sum is rounding noise of either sign
        return advantages
    low, high = 0.8, 100.0
    while high - low >= 0.05:
        middle = (low + high) / 2
        low, high = (middle, high) if (weighed * torch.exp(advantages / middle)).sum() > 0 else (low, middle)
    return advantages * torch.exp(2 * advantages / (low + high))


# ------------------------------------------------------------------ loss and update
def policy_loss(logprobs: BT, behaviour: BT, advantages: B1, sampled: BT, num_tokens: int) -> Tensor:
    """- sum_t keep_t A_t log p_t / num_tokens, with the clip as a mask (REC-OneSide-NoIS, arXiv 2509.24203).

    A token counts until its ratio to the policy that sampled it has moved by CLIP in the direction of its advantage, which bounds
    the later updates on a rollout. In the first one nothing has moved, and this is REINFORCE with the siblings' baseline.
    """
    ratio = (logprobs.detach() - behaviour).exp()
    keep = sampled & torch.where(advantages > 0, ratio <= 1 + CLIP, ratio >= 1 - CLIP)
    return -(advantages * logprobs)[keep].sum() / num_tokens


def update(policy: Policy, optimizer: AdamW, lr: float, episodes: list[Episode], advantages: list[float]) -> float:
    """One optimizer update; the mean distance (nats) of log-probs before it from those at sampling.

    A row without advantage has no gradient and is left out, but its tokens count in the mean: otherwise a rollout of few signals
    would take as large a step as one of many.
    """
    num_tokens, gap, num_compared = sum(sum(episode.sampled) for episode in episodes), 0.0, 0
    rows = [pair for pair in zip(episodes, advantages, strict=True) if abs(pair[1]) > 1e-6]
    rows.sort(key=lambda pair: len(pair[0].ids))  # rows of like length together: little is padding
    optimizer.zero_grad()
    for first in range(0, len(rows), MICRO_BATCH):
        part, own = zip(*rows[first : first + MICRO_BATCH], strict=True)
        columns = zip(*((one.ids, one.sampled, one.logprobs) for one in part), strict=True)
        ids, sampled, behaviour = (pad_sequence([*map(torch.tensor, column)], batch_first=True) for column in columns)
        logprobs = policy.logprobs(ids, sampled)
        policy_loss(logprobs, behaviour, torch.tensor(own)[:, None], sampled, num_tokens).backward()
        gap += float((logprobs.detach() - behaviour).abs().sum())
        num_compared += int(sampled.sum())
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    return gap / max(1, num_compared)


# ------------------------------------------------------------------ warm start: a random policy answers nothing to reinforce
def demonstrated(world: World, pack: Pack, rng: random.Random) -> list[Episode]:
    """Each episode of a pack by the world's scripted teacher, with a context that it makes up: true in part, junk, or none.

    The teacher plays sensibly, trusts its context mostly, and notes each fact rightly half of the time: the protocol, and the skill
    in weak form. No episode shows that notes pay in later tasks; training finds that.
    """
    teacher, tasks = beside(world.env, Players).demonstrator(pack), list(pack.tasks)

    def act(episodes: list[Episode]) -> list[str]:
        return [one.answer(world.encode(f"{teacher.act(one.messages, rng)} <end>")) for one in episodes]

    def note(episodes: list[Episode]) -> list[str]:
        return [
            one.answer(world.encode(f"<hints> {teacher.note(one.messages, rng)} </hints> <end>")) for one in episodes
        ]

    contexts = [teacher.context(rng) for _ in tasks]
    solved = solve(act, world, [copy.deepcopy(world.env) for _ in tasks], tasks, contexts)
    return solved + rewrite(note, world, solved, contexts)


def warm_start(config: Config, policy: Policy, world: World) -> None:
    """Supervised learning on demonstrations, by the same update: with log-prob 0 at sampling and an advantage of 1 no ratio exceeds
    1, nothing is clipped, and the loss is cross-entropy."""
    optimizer = AdamW(policy.parameters(), betas=BETAS, weight_decay=0.0)
    rng, start = random.Random(world.seed), time.time()
    for number in range(config.warm_updates):
        packs = world.packs(Split.TRAIN, 3 * number, 3)
        episodes = [episode for pack in packs for episode in demonstrated(world, pack, rng)]
        lr = config.warm_lr * min((number + 1) / 50, 1 - number / config.warm_updates)
        loss = update(policy, optimizer, lr, episodes, [1.0] * len(episodes))
        if number % 250 == 249:
            print(
                f"warm start {number + 1:4d}/{config.warm_updates}  loss {loss:.3f}  {time.time() - start:.0f} s",
                flush=True,
            )


# ------------------------------------------------------------------ training and evaluation
def train(config: Config, policy: Policy, world: World) -> None:
    """CoD-Train: roll out lifecycles, credit their episodes, update the policy."""
    optimizer = AdamW(policy.parameters(), betas=BETAS, weight_decay=0.0)
    respond, start = Sampler(policy, world.seed), time.time()
    for number in range(config.rollouts):
        packs = world.packs(Split.TRAIN, number * config.packs, config.packs)
        lives = live(respond, world, [pack for pack in packs for _ in range(config.siblings)])
        found = [[(one.reward, sum(one.sampled), one.success) for one in life] for life in lives]
        rewards, num_tokens, success = torch.tensor(found).unflatten(0, (config.packs, -1)).unbind(dim=-1)
        advantages = advantages_of(rewards, num_tokens, config.discount).flatten(0, 1)

        gaps = []
        for i, rows in enumerate(torch.arange(len(lives)).chunk(config.updates)):  # siblings stay together
            lr = config.lr * (1 - 0.8 * (number * config.updates + i) / (config.rollouts * config.updates))
            episodes = [episode for row in rows.tolist() for episode in lives[row]]
            gaps.append(update(policy, optimizer, lr, episodes, advantages[rows].flatten().tolist()))
        if number % 5 == 4:
            solved, read = success[..., 0::2].mean(dim=(0, 1)), float(success[..., 1::2].mean())
            print(f"rollout {number + 1:3d}/{config.rollouts}  success {by_position(solved)}", end="  ")
            print(f"updates read {read:.2f}  log-prob gap {gaps[0]:.0e}  {time.time() - start:.0f} s", flush=True)


def by_position(success: N) -> str:
    return " ".join(f"{share:.2f}".removeprefix("0") for share in success.tolist())


def evaluate(policy: Policy, world: World, packs: list[Pack], temperature: float = 1.0, blanked: bool = False) -> N:
    """Success by position; every call begins with the same seed."""
    lives = live(Sampler(policy, world.seed, temperature), world, packs, blanked=blanked)
    return torch.tensor([[one.success for one in life[0::2]] for life in lives]).float().mean(dim=0)


def run(config: Config) -> dict[str, N]:
    """Warm start, training, and success by position of each row of the table."""
    torch.set_num_threads(1)  # two are slower on matrices so small
    torch.manual_seed(config.seed)
    world = World(config)
    policy, packs = Policy(world, config), world.packs(Split.TEST, 0, config.eval_packs)
    print(f"{sum(weight.numel() for weight in policy.parameters()):,} weights, {len(world.words)} words", flush=True)
    warm_start(config, policy, world)
    rows = {"warm start": evaluate(policy, world, packs)}
    # It holds the skill in weak form, which a low temperature brings out: training has to beat that.
    rows["warm start, T=0.3"] = evaluate(policy, world, packs, temperature=0.3)
    train(config, policy, world)
    rows["trained"] = evaluate(policy, world, packs)
    rows["trained, context blanked"] = evaluate(policy, world, packs, blanked=True)

    (life,) = live(Sampler(policy, world.seed), world, packs[:1])
    print("\nFeedback and context in one of these packs, task by task:")
    for solved, updated in zip(life[0::2], life[1::2], strict=False):
        print(f"  {solved.after:40s} -> {updated.after}")
    print(f"\nSuccess by position in {config.eval_packs} held-out packs:")
    for name, success in rows.items():
        print(f"  {name:26s}{by_position(success)}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train an agent that connects the dots, from nothing.")
    for one in fields(Config):
        parser.add_argument(f"--{one.name}", type=type(one.default), default=one.default)
    run(Config(**vars(parser.parse_args())))
