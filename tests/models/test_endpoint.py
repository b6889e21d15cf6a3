"""A policy without weights: in the tests and deployments of the command line, and refused where weights are needed."""

import json

import pytest

from cod_lightning.cli import main
from cod_lightning.models import EndpointPolicy
from tests.chat_server import ChatServer, Reply, tiny_server

pytestmark = pytest.mark.slow

KEY = "sk-very-secret-0123456789"
LEVERS = ("--config", "experiment/endpoint", "env=levers", "context=hint_compact", "--data.max_new_tokens", "8")
ONE_SUITE = "[{name: levers, num_packs: 4, pack_size: 3, temperature: 0.0, warm_start_temperatures: []}]"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def arguments(url, *more):
    return [*LEVERS, "--data.suites", ONE_SUITE, *engine(model="tiny", base_url=url), *more]


def engine(**settings):
    return [arg for key, value in settings.items() for arg in (f"--data.engine.init_args.{key}", str(value))]


def written(folder):
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_an_endpoint_is_evaluated_like_any_policy(tmp_path, capsys):
    with tiny_server() as server:
        assert main(["test", *arguments(server.url)]) == 0
    out = capsys.readouterr().out
    suite = json.loads((tmp_path / "runs/endpoint/evaluation.json").read_text())["suites"]["levers"]
    assert [p["n"] for p in suite["positions"]] == [4, 4, 4]
    assert "blanked_context" in suite["controls"]
    assert f"tiny: {len(server.requests)} answers" in out
    roles = {tuple(m["role"] for m in request["messages"]) for request in server.requests}
    assert roles == {("system", "user"), ("system", "user", "assistant", "user")}
    assert KEY not in out + written(tmp_path)


def test_an_endpoint_is_a_row_beside_a_policy_with_the_figures_that_it_has_alone(tmp_path, capsys):
    baseline = ["--data.baseline", "cod_lightning.engines.openai.OpenAIEngine", "--data.baseline.model", "tiny"]
    beside = ["--config", "smoke", "--warm_start", "null", "--data.max_new_tokens", "8", "--data.suites", ONE_SUITE]
    prompt = ["--data.system_prompt", "red"]
    with tiny_server() as server:
        assert main(["test", *arguments(server.url, *prompt)]) == 0
        capsys.readouterr()
        where = ["--data.baseline.base_url", server.url, "--trainer.default_root_dir", "beside"]
        assert main(["test", *beside, *prompt, *baseline, *where]) == 0
    assert all(request["messages"][0]["content"].startswith("red") for request in server.requests)
    out = capsys.readouterr().out
    alone = json.loads((tmp_path / "runs/endpoint/evaluation.json").read_text())["suites"]["levers"]
    both = json.loads((tmp_path / "beside/evaluation.json").read_text())["suites"]["levers"]
    assert both["env"] == alone["env"]
    assert both["controls"]["endpoint"] == alone["positions"] != both["positions"]
    assert "endpoint" in out
    assert "tiny: " in out


def test_a_baseline_with_weights_is_refused_by_key(capsys):
    weights = "cod_lightning.engines.transformers.TransformersEngine"
    assert main(["test", "--config", "smoke", "--data.baseline", weights]) == 2
    assert "data.baseline is TransformersEngine; expected an engine whose model" in capsys.readouterr().err


def test_an_endpoint_is_deployed_and_its_use_told(tmp_path, capsys):
    with tiny_server() as server:
        argv = arguments(server.url, "--state", "agent", "--num_tasks", "3", "--sampling_temperature", "0")
        assert main(["deploy", *argv]) == 0
    out = capsys.readouterr().out
    assert "task 2: " in out
    assert f"tiny: {len(server.requests)} answers" in " ".join(out.split())
    assert KEY not in out + written(tmp_path)


def test_a_wrong_key_ends_a_test_with_one_message(capsys, tmp_path):
    denied = Reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status=401)
    with ChatServer(lambda content: denied) as server:
        assert main(["test", *arguments(server.url)]) == 1
    seen = capsys.readouterr()
    assert "error: EngineRefused: " in seen.err
    assert "HTTP 401" in seen.err
    assert not (tmp_path / "runs/endpoint/evaluation.json").exists()
    assert KEY not in seen.out + seen.err + written(tmp_path)


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("test", ["--data.engine.init_args.model", "null"], "data.engine.model is empty"),
        ("test", ["--warm_start", "{num_updates: 5}"], "warm_start is 5 updates"),
        ("test", ["model.policy=TinyPolicy"], "data.engine is OpenAIEngine"),
    ],
)
def test_what_needs_weights_or_a_name_is_refused_before_anything_is_sent(command, more, message, capsys, tmp_path):
    def never(content):
        raise AssertionError("it was asked")

    with ChatServer(never) as server:
        own = engine(model="tiny", base_url=server.url)
        assert main([command, *LEVERS, *own, "--trainer.max_epochs", "1", *more]) == 2
    assert message in capsys.readouterr().err
    assert not server.requests
    assert not (tmp_path / "runs/endpoint/config.yaml").exists()


def test_a_model_that_is_elsewhere_computes_nothing_and_letters_leave_the_tokens_of_prompts_whole():
    policy = EndpointPolicy()
    model = policy.model(policy.tokenizer(()))
    assert not model.state_dict()
    with pytest.raises(NotImplementedError):
        model()
    tokenizer = policy.tokenizer(())
    assert len(tokenizer.encode("caf\u00e9")) == 5, "lengths are counted in bytes"
    prompt = "<|user|>up<|end|>"
    before = tokenizer.backend_tokenizer.encode(prompt).ids
    assert len(policy.model(tokenizer).spell(prompt)) == len(prompt)
    assert tokenizer.backend_tokenizer.encode(prompt).ids == before
    assert len(before) == 4
