"""`examples/one_file.py` against the library: the same rows give the same advantages, loss and first updates."""

import ast
import copy
import itertools
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.models.base import Policy
from cod_lightning.modules import GRPOModule
from cod_lightning.types import Message, Role, Split
from tests.cases import each
from tests.credit_tables import CreditTable, cube, made_batch, stamped
from tests.small_fit import quiet_trainer

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "one_file.py"


@pytest.fixture(scope="module")
def one_file():
    sys.path.insert(0, str(FILE.parent))
    import one_file

    yield one_file
    sys.path.remove(str(FILE.parent))


@pytest.fixture(scope="module")
def small(one_file):
    """A run of levers that takes seconds."""
    return one_file.Config(
        world="levers", packs=8, siblings=4, rollouts=1, warm_updates=60, channels=32, heads=2, eval_packs=16
    )


@pytest.fixture(scope="module")
def begun(one_file, small):
    """A policy that has begun to answer, and a rollout of it: [B][E] episodes in the order of packs and siblings."""
    torch.manual_seed(0)
    world = one_file.World(small)
    policy = one_file.Policy(world, small)
    one_file.warm_start(small, policy, world)
    packs = world.packs(Split.TRAIN, 0, small.packs)
    lives = one_file.live(one_file.Sampler(policy, 0), world, [pack for pack in packs for _ in range(small.siblings)])
    return SimpleNamespace(policy=policy, world=world, packs=packs, lives=lives)


@pytest.fixture
def played(begun):
    return copy.deepcopy(begun)


def table_of(rewards, num_tokens):
    """Rewards [G K E] as the library takes them."""
    kinds = torch.arange(rewards.shape[2]) % 2
    return CreditTable(rewards=rewards, valid=torch.ones_like(rewards).bool(), action_counts=num_tokens, kinds=kinds)


def as_qwen3(policy, config):
    """The same weights in Hugging Face's own model."""
    qwen = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(policy.embed.weight),
            hidden_size=config.channels,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.channels // config.heads,
            intermediate_size=8 * config.channels // 3,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=None,  # else what follows a sampled `<pad>` has no gradient there
        )
    )
    qwen.load_state_dict({theirs: policy.state_dict()[ours] for theirs, ours in names(config)}, strict=False)
    return qwen.train()


def names(config):
    """Pairs of a weight's name in Qwen3 and here."""
    yield "model.embed_tokens.weight", "embed.weight"
    yield "lm_head.weight", "embed.weight"
    yield "model.norm.weight", "norm.weight"
    own = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
    own |= {f"self_attn.{name}_proj": name for name in "qkvo"} | {
        f"self_attn.{name}_norm": f"{name}_norm" for name in "qk"
    }
    own |= {f"mlp.{name}_proj": name for name in ("gate", "up", "down")}
    for layer, (theirs, ours) in itertools.product(range(config.layers), own.items()):
        yield f"model.layers.{layer}.{theirs}.weight", f"blocks.{layer}.{ours}.weight"


class SamePolicy(Policy):
    """The library's view of a policy of the file."""

    window = 200

    def __init__(self, policy=None, config=None):
        self.made = lambda: as_qwen3(policy, config)

    def tokenizer(self, words):
        raise NotImplementedError

    def model(self, tokenizer):
        return self.made()


# ------------------------------------------------------------------ what it may use


def test_it_is_at_most_500_lines_over_torch_and_worlds_alone():
    text = FILE.read_text()
    assert len(text.splitlines()) <= 500
    tree = list(ast.walk(ast.parse(text)))
    used = {node.module for node in tree if isinstance(node, ast.ImportFrom)}
    used |= {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in used} <= {
        "torch",
        "jaxtyping",
        "cod_lightning",
        *sys.stdlib_module_names,
    }
    own = {name for name in used if name.startswith("cod_lightning")}
    assert all(name == "cod_lightning.types" or name.startswith("cod_lightning.envs") for name in own)


@each("seed", range(8))
def test_advantages_are_those_of_the_library_with_and_without_tilt(one_file, seed):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(5, 6, 7, generator=generator)
    # every second time failures are long, so that negative advantages outweigh positive ones
    num_tokens = (20 * (1.5 - rewards)).long() if seed % 2 else (1 + 20 * rewards).long()
    module = GRPOModule(SamePolicy(), credit=EpisodeCredit(mean=False, discount=0.5))
    found = module.credited(table_of(rewards, num_tokens).flat())
    assert (found.temperature > 0) == bool(seed % 2)
    own = one_file.advantages_of(rewards, num_tokens, 0.5)
    torch.testing.assert_close(own.float(), cube(found.tilted, found.table).float(), atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------ tokens


@pytest.mark.slow
def test_what_was_sampled_has_the_same_log_probs_in_training_and_in_qwen3(one_file, small, played):
    qwen = as_qwen3(played.policy, small)
    turns = 0
    for episode in itertools.chain.from_iterable(played.lives[::4]):
        ids, sampled = torch.tensor([episode.ids]), torch.tensor([episode.sampled])
        own = played.policy.logprobs(ids, sampled)[0].detach()
        torch.testing.assert_close(own, torch.tensor(episode.logprobs), atol=1e-5, rtol=0)
        scores = torch.log_softmax(qwen(ids).logits[0], dim=-1)
        theirs = [float(scores[t - 1, episode.ids[t]].detach()) for t in range(len(episode.ids)) if episode.sampled[t]]
        torch.testing.assert_close(own[sampled[0]], torch.tensor(theirs), atol=1e-5, rtol=0)
        turns = max(turns, sum(message.role is Role.ASSISTANT for message in episode.messages))
    assert turns == 2, "no dialogue went on"


def test_a_row_is_the_dialogue_and_only_responses_are_sampled(one_file, played):
    for episode in itertools.chain.from_iterable(played.lives):
        text = " ".join(played.world.words[i] for i in episode.ids)
        said = [f"<{one.role}> {one.content}".strip() for one in episode.messages]
        assert text.replace(" <end>", "") == " ".join(said)
        assert sum(episode.sampled) == sum(
            len(one.content.split()) for one in episode.messages if one.role is Role.ASSISTANT
        ) + episode.ids.count(one_file.END)


def test_a_rewrite_that_spells_markup_or_does_not_parse_keeps_the_old_context_and_costs(one_file, played):
    world = played.world
    fine, *bad = [
        "<hints> 1=red 2=? </hints>",
        "<hints> 1=red <user> want=red </hints>",
        "<hints> </hints>",
        "<hints> 1=red",
        "<hints> 1=red </hints> 2=red",
        "<hints> 1=red </hints> <hints> 1=red </hints>",
    ]

    def respond(episodes):
        return [one.answer(world.encode(text)) for one, text in zip(episodes, [fine, *bad], strict=True)]

    solved = [one_file.Episode(world, after="win 1=red") for _ in [fine, *bad]]
    first, *others = one_file.rewrite(respond, world, solved, ["2=blue"] * len(solved))
    assert (first.after, first.reward, first.success) == ("1=red 2=?", 0.0, True)
    assert {(one.after, one.reward, one.success) for one in others} == {("2=blue", -one_file.FORMAT_PENALTY, False)}


def test_a_blanked_context_is_in_no_task_and_is_still_rewritten(one_file, small, played):
    packs = played.world.packs(Split.TEST, 0, 8)
    lives = one_file.live(one_file.Sampler(played.policy, 0), played.world, packs, blanked=True)
    assert {one.messages[0] for life in lives for one in life[0::2]} == {Message(Role.SYSTEM, "levers")}
    assert any(life[3].messages[0].content != "update" for life in lives)


# ------------------------------------------------------------------ updates


def library_batches(played, config, module):
    """The rollout as the library's batches: one for each update, all with the credit of the whole rollout."""
    episodes = [one for life in played.lives for one in life]
    ids, mask, logprobs = (
        pad_sequence([torch.tensor(getattr(one, name)) for one in episodes], batch_first=True)
        for name in ("ids", "sampled", "logprobs")
    )
    shape = (len(played.packs), config.siblings, -1)
    rewards, num_tokens = torch.tensor([one.reward for one in episodes]), mask.sum(dim=1)
    table = table_of(rewards.view(shape), num_tokens.view(shape)).flat()
    rows = {"token_ids": ids, "behaviour_logprobs": logprobs, "kinds": table.kinds, "siblings": table.siblings}
    lengths = torch.tensor([len(one.ids) for one in episodes])
    whole = stamped(module.credited(table), made_batch(table.place, mask, lengths=lengths, **rows))
    return [whole.rows(part) for part in torch.arange(len(episodes)).split(len(episodes) // config.updates)]


class Rows(L.LightningDataModule):
    """Serves finished batches."""

    seed, chat = 0, SimpleNamespace(tokenizer=None)

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.batches, batch_size=None, shuffle=False)


class Module(GRPOModule):
    """Without the checks of options beside those of a DataModule, which these rows have not."""

    seed, _tokenizer = 0, None
    num_clipped, largest_norm = 0.0, 0.0

    def _log_update(self, batch, totals, norm, lr):
        self.num_clipped += totals["update"]["clipped"]
        self.largest_norm = max(self.largest_norm, norm)


def test_the_first_updates_are_the_librarys_on_the_same_rows(one_file, small, played, tmp_path, monkeypatch):
    for episode in itertools.chain.from_iterable(played.lives):
        episode.reward *= 4  # so that gradients are clipped, too
    module = Module(
        SamePolicy(played.policy, small),
        credit=EpisodeCredit(mean=False, discount=small.discount),
        lr=small.lr,
        betas=(0.9, 0.95),
        final_lr_fraction=0.2,
    )
    batches = library_batches(played, small, module)
    quiet_trainer(tmp_path, max_steps=len(batches)).fit(module, Rows(batches))
    before = {name: weight.clone() for name, weight in played.policy.state_dict().items()}
    monkeypatch.setattr(one_file, "live", lambda *_: played.lives)
    one_file.train(small, played.policy, played.world)
    after, theirs = played.policy.state_dict(), module.model.state_dict()
    assert module.num_clipped > 0
    assert module.largest_norm > 1
    for name, own in names(small):
        moved, apart = after[own] - before[own], after[own] - theirs[name]
        assert moved.abs().max() > 1e-3
        # a single weight may differ more: AdamW divides a gradient by its own size, even where that is rounding noise
        assert apart.norm() < 1e-3 * moved.norm()


# ------------------------------------------------------------------ runs


@pytest.mark.slow
def test_a_short_run_prints_its_table_and_repeats_with_its_seed(one_file, small, capsys):
    shown = []
    for _ in range(2):
        one_file.run(replace(small, packs=4, rollouts=5, warm_updates=10, eval_packs=4))
        shown.append(re.sub(r"\d+ s\n", "", capsys.readouterr().out))
    assert shown[0] == shown[1]
    for row in ("warm start", "warm start, T=0.3", "trained", "trained, context blanked"):
        assert re.search(rf"^  {row} +[.\d]+ [.\d]+ [.\d]+ [.\d]+$", shown[0], re.MULTILINE), row
    assert "rollout   5/5" in shown[0]


def test_its_command_line_has_every_number_and_refuses_an_unknown_world(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(FILE), "--world", "nowhere", "--seed", "2"])
    with pytest.raises(SystemExit, match=r"^--world is 'nowhere'"):
        runpy.run_path(str(FILE), run_name="__main__")


@pytest.mark.soak
def test_success_rises_with_position_and_is_flat_when_the_context_is_blanked(one_file):
    rows = one_file.run(replace(one_file.Config(), world="levers", rollouts=30, warm_updates=800))
    trained, blanked = rows["trained"], rows["trained, context blanked"]
    assert trained.mean() > rows["warm start, T=0.3"].mean()
    assert trained[-1] - trained[0] > 0.2
    assert (blanked - blanked[0]).abs().max() < 0.06
