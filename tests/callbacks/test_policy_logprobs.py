"""What the training forward gave the tokens of kept lifecycles, beside their transcripts."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from cod_lightning.callbacks.transcripts import LogprobWriter, Transcripts
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.lifecycles.base import Program
from cod_lightning.methods.attempts import Anchored
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest, dump, load
from cod_lightning.rollout.transcript import read
from tests.forked import on_two_ranks
from tests.small_fit import Updates, quiet_trainer, small_data, small_policy

NUM_UPDATES = 4
Run = tuple[Path, GRPOModule, Updates]


def fit(
    folder: Path,
    *,
    kept: int = 2,
    max_steps: int = NUM_UPDATES,
    resume: Path | None = None,
    program: Program | None = None,
    **module: Any,
) -> tuple[GRPOModule, Updates, L.Trainer]:
    """Two rollouts of four packs, two updates of each."""
    L.seed_everything(3, verbose=False)
    grpo, updates = GRPOModule(small_policy(), **({"lr": 1e-2} | module)), Updates()
    data = small_data(val_packs=4, seed=3, program=program or ConnectTheDots())
    own = (WeightSync(), Transcripts(train_per_rollout=kept), updates)
    trainer = quiet_trainer(folder, *own, max_steps=max_steps, limit_val_batches=0)
    trainer.fit(grpo, data, ckpt_path=resume)
    return grpo, updates, trainer


def records(folder: Path) -> list[PolicyLogprobs]:
    """Of each episode and update the last, in the order of the file."""
    lines = (folder / "lifecycles" / "train_logprobs.jsonl").read_text().splitlines()
    found = [load(line) for line in lines if line.endswith("}")]
    return list({(one.pack, one.sibling, one.episode, one.updates): one for one in found}.values())


def sampled(folder: Path) -> dict[tuple[str, int, int], tuple[int, list[float]]]:
    """Digest and the sampler's log-probs of every kept training episode, attempts left out."""
    return {
        (group.pack.id, life.sibling, e): (
            action_digest(episode),
            list(chain.from_iterable(turn.behaviour_logprobs for turn in episode.turns)),
        )
        for group in read(folder / "lifecycles" / "train.jsonl")
        for life in group.lifecycles
        for e, episode in enumerate(life.own)
    }


def values(found: Sequence[PolicyLogprobs]) -> dict[tuple[str, int, int, int], list[float]]:
    return {(one.pack, one.sibling, one.episode, one.updates): list(one.logprobs) for one in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    module, updates, _ = fit(folder)
    return folder, module, updates


def test_each_line_tells_of_the_very_tokens_that_the_transcript_has(run: Run) -> None:
    known = sampled(run[0])
    assert records(run[0])
    for one in records(run[0]):
        digest, behaviour = known[one.pack, one.sibling, one.episode]
        assert one.digest == digest
        assert len(one.logprobs) == len(behaviour) > 0


def test_before_the_first_update_the_policy_agrees_with_the_sampler_and_later_it_has_moved(run: Run) -> None:
    known, largest = sampled(run[0]), {0: 0.0, 1: 0.0}
    for one in records(run[0]):
        behaviour = known[one.pack, one.sibling, one.episode][1]
        gaps = [abs(policy - sampler) for policy, sampler in zip(one.logprobs, behaviour, strict=True)]
        largest[one.updates] = max(largest[one.updates], *gaps)
    assert largest[0] < 1e-5
    assert largest[1] > 1e-3


def test_every_kept_episode_with_an_advantage_has_one_line_with_it_and_no_other_has(run: Run) -> None:
    folder, _, updates = run
    kept = {pack for pack, _, _ in sampled(folder)}
    assert len(kept) == 4
    expected, without = [], 0
    for batch in updates.batches:
        rows = zip(map(tuple, batch.place.tolist()), batch.advantages.tolist(), strict=True)
        for (g, k, e), advantage in sorted(dict(rows).items()):
            if batch.pack_ids[g] in kept:
                trained = abs(advantage) > 1e-6
                without += not trained
                expected += [(batch.pack_ids[g], k, e, advantage)] * trained
    assert without
    found = sorted((one.pack, one.sibling, one.episode, one.advantage) for one in records(folder))
    assert [one[:3] for one in found] == [one[:3] for one in sorted(expected)]
    assert [one[3] for one in found] == pytest.approx([one[3] for one in sorted(expected)], abs=1e-5)


def test_attempts_beside_a_lifecycle_have_no_lines(tmp_path: Path) -> None:
    _, updates, _ = fit(tmp_path, program=Anchored(attempts=2), max_steps=2)
    assert any(batch.is_attempt.any() for batch in updates.batches)
    found, known = records(tmp_path), sampled(tmp_path)
    assert found
    assert all(one.digest == known[one.pack, one.sibling, one.episode][0] for one in found)


def test_micro_batches_change_nothing(run: Run, tmp_path: Path) -> None:
    fit(tmp_path, token_budget=60, max_steps=1)
    split, whole = values(records(tmp_path)), values(records(run[0]))
    assert split
    for key, logprobs in split.items():
        torch.testing.assert_close(logprobs, whole[key], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "stopped_after", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_resumed_run_has_the_lines_of_an_uninterrupted_one_behind_one_that_was_torn(
    stopped_after, run, tmp_path
) -> None:
    *_, trainer = fit(tmp_path, max_steps=stopped_after)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    path = tmp_path / "lifecycles" / "train_logprobs.jsonl"
    path.write_text(path.read_text() + dump(records(tmp_path)[-1])[:60])
    *_, resumed = fit(tmp_path, resume=tmp_path / "last.ckpt")
    assert values(records(tmp_path)) == values(records(run[0]))
    (transcripts,) = (one for one in resumed.callbacks if isinstance(one, Transcripts))  # pyright: ignore
    assert set(transcripts.state_dict()["followed"].values()) == {2}, "packs of the latest rollout, which began at 2"


def test_a_checkpoint_of_two_ranks_follows_the_packs_of_both(tmp_path: Path) -> None:
    def act(rank: int) -> dict[str, Any]:
        transcripts = Transcripts()
        transcripts._logprobs = LogprobWriter(L.Trainer(logger=False, default_root_dir=tmp_path))
        transcripts._logprobs.followed = {f"p{rank}": 4}
        return transcripts.state_dict()

    assert on_two_ranks(tmp_path, act) == [{"followed": {"p0": 4, "p1": 4}}] * 2


def test_a_new_run_begins_its_file_anew(tmp_path: Path) -> None:
    fit(tmp_path, max_steps=1)
    first = records(tmp_path)
    fit(tmp_path, max_steps=1)
    assert records(tmp_path) == first


def test_where_no_lifecycle_is_kept_nothing_is_written(tmp_path: Path) -> None:
    module, *_ = fit(tmp_path, kept=0, max_steps=1)
    assert not (tmp_path / "lifecycles").exists()
    assert module.row_listeners == []
