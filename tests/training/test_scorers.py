"""A vLLM server that scores given tokens: aligned, checked at the start, and masked where it fails."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

from cod_lightning.callbacks import WeightSync
from cod_lightning.errors import ConfigError, ScorerFailed
from cod_lightning.models import TinyPolicy
from cod_lightning.objective.terms import KL, TermInputs
from cod_lightning.training.scorers import CheckpointScorer, Scorer, check_missing, scoring
from cod_lightning.training.vllm_scorer import VLLMScorer
from tests.cases import each
from tests.scored import TINY, by_definition, forward, rows
from tests.small_fit import small_fit
from tests.story import Everything
from tests.stubs import WordWorld
from tests.vllm_server import FakeVLLM


@pytest.fixture(scope="module")
def tokenizer():
    return TinyPolicy(**TINY).tokenizer(WordWorld().words())


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    return TinyPolicy(**TINY).model(tokenizer).eval()


@pytest.fixture
def server(tokenizer, model):
    fake = FakeVLLM()
    fake.vocabulary = tokenizer.get_vocab()
    fake.logprobs = lambda ids: [0.0, *by_definition(model, ids)]
    yield fake
    fake.die()


def scorer(server, **kwargs):
    return VLLMScorer(server.url, "teacher", **({"timeout_s": 5.0} | kwargs))


def test_a_server_s_scores_are_those_of_the_checkpoint_that_it_serves(server, model, tmp_path):
    model.save_pretrained(tmp_path)
    batch = rows()
    found = scorer(server).score(batch, forward)
    assert batch.action_mask[0, 1], "the first action token has only one token before it"
    assert torch.allclose(found, CheckpointScorer(str(tmp_path)).score(batch, forward), atol=1e-6)
    assert (found[batch.action_mask] < 0).all()
    assert (found[~batch.action_mask] == 0).all()


def test_the_policy_s_tokenizer_passes_and_another_is_refused_by_key_with_a_remedy(server, tokenizer):
    scorer(server).check("model.scorers.teacher", tokenizer.get_vocab())
    server.vocabulary = {word: number + (word == "w7") for word, number in server.vocabulary.items()}
    with pytest.raises(ConfigError) as caught:
        scorer(server).check("model.scorers.teacher", tokenizer.get_vocab())
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(
        "model.scorers.teacher.model is teacher; expected a model with the policy's tokenizer; 1 of "
    )
    assert "'w7'" in line
    assert "Choose a teacher of the same family" in line


@pytest.mark.parametrize("trouble", ["down", "no such route"])
def test_a_server_that_is_not_there_at_the_start_is_refused_by_key(server, tokenizer, trouble):
    if trouble == "down":
        server.die()
    else:
        server.answer = lambda path, body: (404, {"detail": "Not Found"})
    with pytest.raises(ConfigError, match=r"model\.scorers\.teacher\.url is http://127.*expected a vLLM server"):
        scorer(server).check("model.scorers.teacher", tokenizer.get_vocab())


def _with_logprobs(change):
    return lambda answer: {"choices": [{"prompt_logprobs": change(answer["choices"][0]["prompt_logprobs"])}]}


NONSENSE = {
    "fewer tokens": _with_logprobs(lambda listed: listed[:-1]),
    "more tokens": _with_logprobs(lambda listed: [*listed, listed[-1]]),
    "other tokens": _with_logprobs(lambda listed: [None, *({"99": {"logprob": -1.0}} for _ in listed[1:])]),
    "no log-probs": _with_logprobs(lambda listed: None),
    "above 0": _with_logprobs(lambda listed: [None, *({k: {"logprob": 1.0} for k in one} for one in listed[1:])]),
    "not a number": _with_logprobs(
        lambda listed: [None, *({k: {"logprob": math.nan} for k in one} for one in listed[1:])]
    ),
    "beyond a float": _with_logprobs(
        lambda listed: [None, *({k: {"logprob": -(10**400)} for k in one} for one in listed[1:])]
    ),
    "text": lambda answer: "<html>",
    "a list": lambda answer: [],
    "too deep": lambda answer: "[" * 100_000,
}


@pytest.mark.parametrize("name", NONSENSE)
def test_an_answer_that_is_not_about_these_tokens_costs_its_row_alone(server, name):
    batch = rows()
    hit = batch.token_ids[2, :6].tolist()
    whole = scorer(server).score(batch, forward)
    server.spoilt = lambda ids, answer: NONSENSE[name](answer) if ids == hit else answer
    with scoring("teacher"):
        found = scorer(server).score(batch, forward)
    assert found[2, batch.action_mask[2]].isnan().all()
    assert torch.equal(found[[0, 1, 3]], whole[[0, 1, 3]])
    num_action = int(batch.action_mask.sum())
    sums = KL(to="teacher")(
        TermInputs(
            policy_logprobs=torch.zeros_like(found).requires_grad_(),
            entropies=torch.zeros_like(found),
            scores={"teacher": found},
            action_mask=batch.action_mask,
        )
    )
    assert sums.num_missing == int(batch.action_mask[2].sum())
    assert sums.loss.isfinite()
    check_missing("teacher", sums.num_missing, num_action)


@pytest.mark.parametrize("trouble", ["down", "HTTP 500", "hangs"])
def test_a_server_that_fails_in_a_rollout_leaves_its_tokens_without_a_score(server, trouble):
    batch = rows()
    if trouble == "down":
        server.die()
    elif trouble == "hangs":
        server.after_s = 3.0
    else:
        server.status = 500
    found = scorer(server, timeout_s=0.3).score(batch, forward)
    assert found[batch.action_mask].isnan().all()
    assert (found[~batch.action_mask] == 0).all()
    with pytest.raises(ScorerFailed, match=r"gave no log-prob for 14 of 14 action tokens"):
        check_missing("teacher", int(found.isnan().sum()), int(batch.action_mask.sum()))


@pytest.fixture
def real_server(model, tokenizer, tmp_path):
    """The URL of vLLM with the tiny model and its tokenizer."""
    model.save_pretrained(tmp_path / "teacher")
    tokenizer.save_pretrained(tmp_path / "teacher")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(tmp_path / "teacher"), "--served-model-name", "teacher", "--max-model-len", "256"),
        *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8", "--kv-cache-memory-bytes", str(2**28)),
    ]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(500):
            assert child.poll() is None, (tmp_path / "log").read_text()[-3000:]
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    break
            time.sleep(0.5)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.mark.vllm
@pytest.mark.timeout(600)
def test_the_prompt_log_probs_of_vllm_are_those_of_the_training_forward(real_server, model, tokenizer):
    made, batch = VLLMScorer(real_server, "teacher"), rows()
    made.check("model.scorers.teacher", tokenizer.get_vocab())
    found = made.score(batch, forward)
    gap = float((found - forward(model, batch)).abs().max())
    print(f"largest gap: {gap:.1e}")
    assert gap <= 1e-4
    other = {word: number + 1 for word, number in tokenizer.get_vocab().items()}
    with pytest.raises(ConfigError, match="the policy's tokenizer"):
        made.check("model.scorers.teacher", other)


def test_each_divergence_is_from_the_model_that_its_term_names():
    batch = rows()
    apart = {"reference": 0.5, "teacher": 2.0}
    scores = {name: batch.behaviour_logprobs - gap for name, gap in apart.items()}
    inputs = TermInputs(
        policy_logprobs=batch.behaviour_logprobs,
        entropies=batch.behaviour_logprobs,
        scores=scores,
        action_mask=batch.action_mask,
    )
    for name, gap in apart.items():
        assert float(KL(to=name)(inputs).loss) == pytest.approx(0.5 * gap**2 * int(batch.action_mask.sum()))


def test_a_checkpoint_scores_without_dropout_and_without_gradients(model, tmp_path):
    model.config.attention_dropout = 0.5
    model.save_pretrained(tmp_path)
    model.config.attention_dropout = 0.0
    teacher = CheckpointScorer(str(tmp_path))
    teacher.score(rows(), forward)
    assert not teacher.weights.training
    assert not any(parameter.requires_grad for parameter in teacher.weights.parameters())


@each("change", [{"w7": None}, {"w7": 9999}, {"new": 9999}])
def test_a_checkpoint_whose_tokens_are_not_exactly_the_policy_s_is_refused(tokenizer, model, tmp_path, change):
    tokenizer.save_pretrained(tmp_path)
    teacher, own = CheckpointScorer(str(tmp_path)), tokenizer.get_vocab()
    teacher.check("model.scorers.teacher", own)
    changed = {word: number for word, number in (own | change).items() if number is not None}
    with pytest.raises(ConfigError, match=r"model\.scorers\.teacher\.path is .*tokens? differ"):
        teacher.check("model.scorers.teacher", changed)


@each("name", ["update-00000012.ckpt", "weights.bin"])
def test_a_run_s_checkpoint_is_no_teacher_and_the_remedy_makes_one_of_it(name, tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"model\.scorers\.teacher\.path is .*not a run's checkpoint") as refused:
        CheckpointScorer(str(tmp_path / name)).check("model.scorers.teacher", {})
    assert "export --ckpt_path" in refused.value.remedy


class OfThisRollout(Scorer):
    """Knows what was played now, as a teacher that sees more does."""

    def rows(self, rows, played):
        return rows, ~rows.is_replayed

    def score(self, rows, forward):
        return forward(None, rows) - 0.1


class Whatever(Everything):
    """Stores all that it sees."""

    def worth(self, episode):
        return 1.0


def test_a_teacher_that_does_not_know_replayed_rows_leaves_them_out_however_many_there_are(tmp_path):
    own = {"terms": [KL(to="teacher")], "scorers": {"teacher": OfThisRollout()}}
    updates = small_fit(tmp_path, WeightSync(), module=own, replay=Whatever(), rollouts_per_epoch=3).updates
    whole = updates.batches[-2:]
    replayed, new = (sum(int(b.action_mask[b.is_replayed == one].sum()) for b in whole) for one in (True, False))
    assert replayed > new
    for batch in whole:
        known = batch.action_mask & batch.scores["teacher"].isfinite()
        assert known.equal(batch.action_mask & ~batch.is_replayed[:, None])
