"""Lifecycles that were collected elsewhere are trained on as those that the engine plays, waited for, and refused when too old."""

import json
import math
import os
import threading

import pytest
import torch
from msgspec import structs

from cod_lightning.callbacks.transcripts import Transcripts
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.engines.base import digest
from cod_lightning.errors import ConfigError
from cod_lightning.methods.recorded import RecordedGroups
from cod_lightning.objective.losses import REC
from cod_lightning.rollout import transcript
from cod_lightning.training.packs import TrainingPacks
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus
from tests.cases import each
from tests.small_fit import small_fit
from tests.stubs import WordWorld

SIZES_OF_POLICY = 1000, 512
"""Its ids, and its window."""


def fit(folder, *, source=None, **more):
    """Weights after two rollouts, and the engine."""
    callbacks, module = (
        (Transcripts(train_per_rollout=2), WeightSync(self_test=None)),
        {"loss": REC(), "reweight": None},
    )
    sizes = {"source": source, "seed": 3, "group_size": 2, "packs_per_rollout": 2} | more
    run = small_fit(folder, *callbacks, module=module, trainer={"limit_val_batches": 0}, **sizes)
    return {name: weight.clone() for name, weight in run.module.model.state_dict().items()}, run.data.engine


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The weights of another run, and the folder of its transcripts."""
    folder = tmp_path_factory.mktemp("other")
    return fit(folder)[0], folder / "lifecycles"


def packs_of(folder, **options):
    packs = TrainingPacks(RecordedGroups(str(folder), **options), WordWorld(), 2, 3)
    return packs, [pack for _, pack in packs.draw(0, 2)]


def collected(folder, *, num_packs=2, sizes=SIZES_OF_POLICY, **options):
    """The groups of the first packs, from the files of a folder."""
    packs, drawn = packs_of(folder, **options)
    return packs.collected(drawn[:num_packs], 2, *sizes)


def test_a_run_on_the_lifecycles_of_another_ends_with_its_weights_and_plays_none(other, tmp_path):
    weights, folder = other
    found, engine = fit(tmp_path, source=RecordedGroups(str(folder)))
    assert engine.decoder._pumping is None, "nothing was sampled"
    assert all(torch.equal(weights[name], found[name]) for name in weights)
    assert transcript.read(tmp_path / "lifecycles" / "train.jsonl") == transcript.read(folder / "train.jsonl")


def test_lifecycles_that_are_still_being_written_are_waited_for(other, tmp_path):
    lines = (other[1] / "train.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    with pytest.raises(ConfigError, match=r"expected 2 lifecycles of pack words/train/3/1 .* within 0 s.*wait_s"):
        collected(tmp_path)
    packs, drawn = packs_of(tmp_path, wait_s=60)

    def finished():
        with path.open("ab") as file:
            file.write(lines[3][50:])

    threading.Timer(0.05, finished).start()
    groups = packs.collected(drawn, 2, *SIZES_OF_POLICY)
    assert [group.pack for group in groups] == drawn
    assert [group.lifecycles for group in groups] == [
        group.lifecycles for group in transcript.read(other[1] / "train.jsonl")[:2]
    ]


def test_lifecycles_of_other_packs_that_go_on_coming_are_not_waited_for_without_end(tmp_path, monkeypatch):
    packs, drawn = packs_of(tmp_path, wait_s=0.2)
    looks, find = [], packs.source._find

    def written_meanwhile():
        looks.append(len(looks))
        assert len(looks) < 20, "it waits on"
        with (tmp_path / "train.jsonl").open("a") as file:
            file.write(f'{{"pack": {{"id": "words/train/9/{len(looks)}"}}, "sibling": 0}}\n')
        return find()

    monkeypatch.setattr(packs.source, "_find", written_meanwhile)
    with pytest.raises(ConfigError, match=r"expected 2 lifecycles of pack words/train/3/0 .* within 0\.2 s"):
        packs.collected(drawn, 2, *SIZES_OF_POLICY)


def test_the_latest_lines_of_a_pack_count_and_damaged_ones_are_named(other, tmp_path):
    first, *_ = transcript.read(other[1] / "train.jsonl")
    again = structs.replace(first, lifecycles=tuple(reversed_episodes(life) for life in first.lifecycles))
    transcript.write(tmp_path / "train.jsonl", [first, again])
    assert collected(tmp_path, num_packs=1)[0].lifecycles == again.lifecycles
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ConfigError, match=r"train\.jsonl; expected whole lines"):
        collected(tmp_path)


def reversed_episodes(life):
    return structs.replace(life, episodes=life.episodes[::-1])


FIRST = ("episodes", 0)
TURN = (*FIRST, "turns", 0)
FAILED = {"status": "failed", "reward": None, "success": None, "error": "\x1b[2J: x"}
ELSEWHERE = "belong to no solve"
DAMAGES = {
    "an id below 0": ({(*TURN, "action_ids", 0): -5}, "token id -5, outside the voc"),
    "an id beyond int64": ({(*TURN, "new_ids", 0): 10**30}, "outside the vocabulary of"),
    "a log-prob NaN": ({(*TURN, "behaviour_logprobs", 0): math.nan}, "log-prob nan, where one is finite and at most 0"),
    "a log-prob above 0": ({(*TURN, "behaviour_logprobs", 0): 5.0}, "log-prob 5.0, where"),
    "a version beyond int64": ({(*TURN, "policy_version"): 10**400}, "a policy version below -1, or beyond 64 bits"),
    "a reward beyond float": ({(*FIRST, "reward"): math.inf}, "not finite"),
    "a reward beyond those of rollouts": ({(*FIRST, "reward"): -1e308}, r"above 1e\+30"),
    "a weight of an episode that it lacks": (
        {(*FIRST, "weights"): [[99, 1.0]]},
        "a weight of an episode that it lacks",
    ),
    "a weight beyond float": ({(*FIRST, "weights"): [[0, math.nan]]}, r"that is not finite or above 1e\+30"),
    "a part that is no number": ({(*FIRST, "parts"): {"world": math.nan}}, "not finite"),
    "a part that acts on terminals": ({(*FIRST, "parts"): {"\x1b[2J": 1.0}}, r"\[2J as the name of a part or a fault"),
    "a fault that acts on terminals": (
        {(*FIRST, key): value for key, value in FAILED.items()},
        r"\[2J as the name of a part or a fault",
    ),
    "an update after the last task": ({("episodes", 1, "position"): 2}, ELSEWHERE),
    "an attempt at an update": ({("attempt",): (1, 99, {})}, "attempts beside no solve episode"),
    "other ids": ({(*TURN, "new_ids"): [3, 4]}, "continue the ids of their prompts"),
    "a position beyond its episodes": ({(*FIRST, "position"): 2**62}, ELSEWHERE),
    "an attempt at a task that was not played": (
        {("attempt",): (0, 99, {"position": 9})},
        "attempts beside no solve episode",
    ),
    "an attempt in front of an episode": ({("attempt",): (0, 1, {})}, "or in front of one"),
    "no episodes": ({("episodes",): []}, ELSEWHERE),
    "a sibling that is no number": ({("sibling",): math.inf}, "whole lines"),
    "lists in lists": ({("nothing",): "DEEP"}, "whole lines"),
}
"""What is put at which place of a record, and what is said of it; an attempt is its episode of that number, at that index."""


def put(record, place, value):
    *above, last = place
    for part in above:
        record = record[part]
    if last == "attempt":
        beside, at, more = value
        record["episodes"].insert(at, record["episodes"][beside] | {"parent": beside, "trained": True} | more)
    else:
        record[last] = value


@each("damage", DAMAGES)
def test_a_lifecycle_that_no_rollout_makes_is_refused_before_it_is_trained_on(other, tmp_path, damage):
    lines = (other[1] / "train.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    changes, said = DAMAGES[damage]
    for place, value in changes.items():
        put(record, place, value)
    lines[0] = json.dumps(record).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=rf"data\.source.*{said}"):
        collected(tmp_path)


def test_lifecycles_with_an_image_train_no_policy_in_text(other, tmp_path):
    line = json.loads((other[1] / "train.jsonl").read_text().splitlines()[0])
    image = {"type": "image", "png": "", "alternative": "", "media_type": "image/png"}
    line["episodes"][0]["turns"][0]["parts"] = [image]
    lines = [json.dumps(line), *(other[1] / "train.jsonl").read_text().splitlines()[1:]]
    (tmp_path / "train.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ConfigError, match=r"model\.policy is TinyPolicy; expected one that reads images"):
        fit(tmp_path / "run", source=RecordedGroups(str(tmp_path)))


def test_a_lifecycle_that_a_fault_ended_before_its_first_task_is_one_of_a_rollout(other, tmp_path):
    group, *_ = transcript.read(other[1] / "train.jsonl")
    lost = Episode(kind=EpisodeKind.WRITE, position=0, status=EpisodeStatus.FAILED, error="EnvironmentFailure: gone")
    lives = (structs.replace(group.lifecycles[0], episodes=(lost,)), group.lifecycles[1])
    transcript.write(tmp_path / "train.jsonl", [structs.replace(group, lifecycles=lives)])
    assert collected(tmp_path, num_packs=1)[0].lifecycles[0].episodes == (lost,)


def test_a_row_beyond_the_window_is_refused_though_its_digests_are_right(other, tmp_path):
    group, *_ = transcript.read(other[1] / "train.jsonl")
    turn, *_ = group.lifecycles[0].episodes[0].turns
    long = structs.replace(turn, new_ids=(5,) * 512, prompt_digest=digest((5,) * 512))
    solved, *rest = group.lifecycles[0].episodes
    life = structs.replace(group.lifecycles[0], episodes=(structs.replace(solved, turns=(long,)), *rest))
    transcript.write(tmp_path / "train.jsonl", [structs.replace(group, lifecycles=(life, group.lifecycles[1]))])
    expected = rf"at most model\.policy\.window=512 tokens; the longest has {512 + len(turn.action_ids)}"
    with pytest.raises(ConfigError, match=expected):
        collected(tmp_path, num_packs=1)


def test_ids_of_another_vocabulary_are_refused(other):
    with pytest.raises(ConfigError, match="outside the vocabulary of 4"):
        collected(other[1], sizes=(4, 512))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.jsonl")
    with pytest.raises(ConfigError, match="expected 2 lifecycles"):
        collected(tmp_path)


def test_it_is_refused_where_nothing_can_be_read_and_beside_rollouts_ahead(other, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.source\.folder is .*nowhere"):
        packs_of(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"data\.max_staleness is 1"):
        fit(tmp_path, source=RecordedGroups(str(other[1])), max_staleness=1)


def test_a_source_that_gives_other_lifecycles_than_those_asked_for_is_refused(other):
    class Fewer(RecordedGroups):
        def collected(self, packs, num_siblings):
            return super().collected(packs, num_siblings)[:1]

    packs = TrainingPacks(Fewer(str(other[1])), WordWorld(), 2, 3)
    with pytest.raises(ConfigError, match="`collected` gives 2 lifecycles of each pack, in their order"):
        packs.collected([pack for _, pack in packs.draw(0, 2)], 2, *SIZES_OF_POLICY)
