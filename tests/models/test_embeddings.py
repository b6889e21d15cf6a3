"""Records retrieved by a local encoder: a tiny random one."""

import io
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentParser
from transformers import BertConfig, BertModel, T5Config, T5Model

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.contexts.records import Record
from cod_lightning.errors import ConfigError
from cod_lightning.methods.episodes import EpisodesContext, EpisodesState
from cod_lightning.models.embeddings import Embeddings
from tests.models.test_foreign_folders import own_code
from tests.real_templates import QWEN3_TOOLS, bpe_tokenizer

TEXTS = ("a red door", "a blue lamp and more", "green", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, tokenizer = tmp_path_factory.mktemp("encoder"), bpe_tokenizer(QWEN3_TOOLS)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def test_scores_are_cosines_of_mean_pooled_vectors_and_the_same_every_time(folder):
    embeddings = Embeddings(folder)
    scores = embeddings.scores(TEXTS, str, "a red door")
    assert scores[0] == pytest.approx(1)
    assert np.argmax(scores) == 0
    alone = [Embeddings(folder).scores((text,), str, "a red door")[0] for text in TEXTS]
    np.testing.assert_allclose(scores, alone, rtol=1e-6)
    assert embeddings.scores((), str, "x").shape == (0,)
    tokenizer, model = embeddings._tokenizer, embeddings._model
    with torch.inference_mode():
        first, second = (
            model(**{"input_ids": tokenizer(text, return_tensors="pt")["input_ids"]}).last_hidden_state[0].mean(0)
            for text in ("green", "a red door")
        )
    assert scores[2] == pytest.approx(float(torch.cosine_similarity(first, second, dim=0)), abs=1e-5)


def test_the_nearest_record_is_shown(folder):
    context = EpisodesContext(select="similarity", most=1, similarity=Embeddings(folder, max_tokens=8))
    state = EpisodesState(tuple(Record(n, text, "", "") for n, text in enumerate(TEXTS[:3])), (0.5,) * 3, num_tasks=3)
    assert context.prepare(state, "rules", "a blue lamp and more").state.shown == (1,)


def test_of_a_long_text_nothing_is_kept_but_its_vector(folder):
    embeddings = Embeddings(folder, max_tokens=8)
    tracemalloc.start()
    for number in range(6):
        embeddings.scores(TEXTS, str, f"{number} " + "x" * 30_000)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(embeddings._kept) > 6
    assert kept < 10**5


@pytest.mark.parametrize("fault", ["positions", "nan", "decoder"])
def test_an_encoder_that_cannot_encode_is_refused_before_anything_is_played(folder, tmp_path, fault):
    shutil.copytree(folder, tmp_path / "other")
    model, most = BertModel.from_pretrained(folder), 8
    if fault == "positions":
        most = 1 + model.config.max_position_embeddings
    elif fault == "nan":
        model.embeddings.word_embeddings.weight.data.fill_(float("nan"))
        model.save_pretrained(tmp_path / "other")
    else:
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
        T5Model(T5Config(vocab_size=model.config.vocab_size, **sizes)).save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match=f"an encoder of {most} tokens"):
        Embeddings(str(tmp_path / "other"), max_tokens=most)


def test_a_config_chooses_it(folder):
    parser = ArgumentParser()
    parser.add_argument("--context", type=ContextMechanism)
    chosen = {"class_path": "cod_lightning.models.embeddings.Embeddings", "init_args": {"path": folder}}
    config = {
        "context": {"class_path": "cod_lightning.methods.episodes.EpisodesContext", "init_args": {"similarity": chosen}}
    }
    built = parser.instantiate_classes(parser.parse_object(config)).context
    assert isinstance(built.similarity, Embeddings)
    assert built.similarity.path == folder


def test_a_folder_without_an_encoder_is_named_in_one_line(tmp_path):
    with pytest.raises(
        ConfigError, match=r"data\.context\.similarity\.path is .*; expected a folder with an encoder"
    ) as caught:
        Embeddings(str(tmp_path))
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        Embeddings(str(tmp_path), max_tokens=0)


def test_a_folder_with_code_of_its_own_is_refused_and_its_code_is_not_run_whatever_is_answered(
    folder, tmp_path, monkeypatch, capsys
):
    foreign = tmp_path / "foreign"
    shutil.copytree(folder, foreign)
    own_code(foreign, "new")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with pytest.raises(ConfigError, match=r"data\.context\.similarity\.path .*custom code"):
        Embeddings(str(foreign))
    assert not (foreign / "PWNED").exists()
    assert "[y/N]" not in capsys.readouterr().out
