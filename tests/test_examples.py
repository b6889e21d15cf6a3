"""What the guides say about a world and a context mechanism of one's own."""

import pickle
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from gymnasium.utils.env_checker import check_env

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import InTask, Scripted, Stored
from cod_lightning.credit.table import kind_id
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.base import Reference, TextPolicy, beside
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.lifecycles import outline
from cod_lightning.objective.terms import TermInputs
from cod_lightning.types import EpisodeKind, EpisodeStatus, Split
from tests.asked import answered
from tests.envs.apps.played import successes
from tests.word_play import scripted

ROOT = Path(__file__).parents[1]
EXAMPLES = "hidden_number", "vending_machine", "topic_notes", "parcels"


def example(name):
    @pytest.fixture
    def imported(monkeypatch):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / name))
        return import_module(name)

    return imported


hidden_number, vending_machine, topic_notes, parcels = map(example, EXAMPLES)


def test_the_example_keeps_the_contract(hidden_number):
    env = hidden_number.HiddenNumber()
    check_env(env, skip_render_check=True)
    numbers = {
        split: {env.sample_pack(split=split, index=i, num_tasks=2).tasks[0].spec.number for i in range(60)}
        for split in Split
    }
    assert not numbers[Split.TRAIN] & numbers[Split.TEST]
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    number = pack.tasks[1].spec.number
    env.reset(options={"task": pack.tasks[0]})
    assert env.step(f"<answer>{number - 1}</answer>")[0] == f"{number - 1} is too low."
    assert env.step(f"<answer>{number}</answer>")[1:4] == (1.0, True, False)
    assert env.success
    for text in ("", "<answer>\U0001f600</answer>", "<answer>٣</answer>", "9" * 100_000):
        env.reset(options={"task": pack.tasks[0]})
        assert env.step(text)[1:4] == (0.0, True, False)
        assert env.status is EpisodeStatus.MALFORMED


def test_the_example_goes_through_the_real_rollout(hidden_number):
    class Bisecting(TextPolicy):
        def act(self, messages, rng):
            low, high = 1, 30
            for message in messages:
                for guess, stated in re.findall(r"(\d+) is too (\w+)", message.content):
                    low, high = (
                        (max(low, int(guess) + 1), high) if stated == "low" else (low, min(high, int(guess) - 1))
                    )
            return f"<answer>{(low + high) // 2}</answer>"

        def note(self, messages, rng):
            return " ".join(
                f"{g} is too {t}." for m in messages for g, t in re.findall(r"(\d+) is too (\w+)", m.content)
            )

    env, mechanism = hidden_number.HiddenNumber(), HintContext(response_limit=None)
    groups = scripted(env, mechanism, Bisecting(), num_packs=40)
    success = [sum(bool(g.lifecycles[0].solves[n].success) for g in groups) for n in range(3)]
    assert success[0] < success[1] == 40


def test_the_vending_machine_keeps_every_rule_and_its_scripted_player_gains(vending_machine):
    found = list(check_world(vending_machine.VendingMachine(), HintContext("compact"), num_packs=20, pack_size=4))
    assert not [verdict for verdict in found if verdict.broken]
    (scripted,) = [verdict.remark for verdict in found if verdict.rule.startswith("scripted play")]
    success = [float(value) for value in scripted.split()[-4:]]
    assert success[0] < 0.7 < 0.8 < success[3]


CONTEXT_GUIDE = (ROOT / "docs" / "guides" / "your_own_context.md").read_text()


def test_the_mechanism_plays_the_lifecycle_of_its_guide_and_its_state_is_stored_and_read(topic_notes, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", CONTEXT_GUIDE, flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(blocks[1], names)
    solves = [line for line in capsys.readouterr().out.splitlines() if line.startswith("solve")]
    assert [line.split()[2] for line in solves] == ["0.0", "1.0", "0.0", "1.0", "1.0", "1.0"]
    assert "Lever 2 gives gold" in solves[-1]
    life = names["group"].lifecycles[0]
    state = life.episodes[-1].state_after
    assert {note.text: note.worth for note in state.notes}["- Lever 2 gives gold"] == 0.8125
    again = topic_notes.TopicNotes()
    stored = beside(again, Stored)
    assert stored.load(stored.dump(state)) == state


def test_of_its_notes_a_task_is_shown_those_that_share_a_word_the_most_useful_first(topic_notes):
    note, mechanism = topic_notes.Note, topic_notes.TopicNotes(most=2)
    state = topic_notes.Notes(
        (note("red: lever 1"), note("red: lever 2", 0.5), note("blue: lever 3"), note("red is red"))
    )
    prepared = mechanism.prepare(state, "rules", "The colour is red.")
    assert prepared.state.shown == ("red is red", "red: lever 2")
    assert "blue" not in prepared.system
    assert mechanism.prepare(mechanism.empty(), "rules", "red").system == "rules"
    intervention = beside(mechanism, InTask).on_turn(state, "First I look. <look>blue</look>", None)
    assert intervention.reply == "blue: lever 3"
    assert beside(mechanism, InTask).on_turn(state, "<answer>Lever 3</answer>", None) is None


def test_it_asks_once_more_for_notes_that_cannot_be_read(topic_notes):
    mechanism = topic_notes.TopicNotes()
    before = beside(mechanism, Scripted).adopt("old")
    late = answered(mechanism, ["no block", "<notes>\nold\nnew\nnew\n</notes>"], state=before)
    assert (late.parsed, mechanism.text(late.state)) == (True, "old\nnew")
    never = answered(mechanism, ["no block", "<notes><|end|></notes>"], state=before, special_tokens={"<|end|>"})
    assert (never.parsed, never.state, never.reward) == (False, before, -0.1)
    assert "control token <|end|>" in never.reason


def _classes_of(guide: str) -> dict:
    """What the Python blocks of a guide define."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "guides" / guide).read_text(), re.DOTALL | re.M)
    names: dict = {"__name__": "guide"}
    exec("".join(blocks), names)
    return names


def test_the_program_of_its_guide_is_one():
    assert [f"{kind} {n}" for kind, n, _ in outline(_classes_of("programs.md")["OnlyOnce"](), 3)] == [
        "solve 0",
        "update 0",
        "solve 1",
        "solve 2",
    ]


def test_the_credit_rule_of_its_guide_pays_each_episode_for_the_last_task():
    solve, update = kind_id(EpisodeKind.SOLVE), kind_id(EpisodeKind.UPDATE)
    rule = _classes_of("programs.md")["AndTheLast"](share=2.0)
    assert rule.weights(torch.tensor([solve, update, solve])).tolist() == [[1, 0, 2], [0, 1, 2], [0, 0, 1]]


def test_the_loss_term_of_its_guide_leaves_out_tokens_without_a_score():
    policy, nan = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True), float("nan")
    inputs = TermInputs(
        policy_logprobs=policy,
        entropies=torch.zeros(1, 3),
        scores={"teacher": torch.tensor([[-2.0, nan, 0.0]])},
        action_mask=torch.tensor([[True, True, False]]),
    )
    sums = _classes_of("loss_terms.md")["Pull"](coefficient=0.5)(inputs)
    assert (sums.loss.item(), sums.num_missing) == (0.5, 1)
    sums.loss.backward()
    assert policy.grad.tolist() == [[1.0, 0.0, 0.0]]


def test_an_app_of_ones_own_has_documents_quirks_and_checks(parcels):
    env = Apps(extensions=[parcels.Parcels()], templates=["pay_duty"], quirks=5, spare_calls=20)
    (task,) = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks
    spec, facts = task.spec, task.spec.facts
    assert env.reset(options={"task": task})[0].count("Pay the duty for my parcel from")
    assert "parcels" in env.rules
    documents = env.step("<answer>for line in user.docs(app='parcels'):\n    print(line)</answer>")[0]
    assert (
        "parcels.pay_duty(id: whole number, card: text, token: text) Pays the duty of a parcel with a card."
        in documents
    )
    login = f"t = parcels.{facts.moved}(password=user.passwords()['parcels'])['token']\n"
    sender = dict(spec.parts)["sender"]
    assert env.step(f"<answer>{login}</answer>")[1:4] == (0.0, False, False)
    found = env.step(f"<answer>x = parcels.list(sender='{sender}', token=t)['items'][0]\nx</answer>")[0]
    assert '"paid": false' in found
    field, _, value = facts.field.partition("=")
    paid = f"parcels.pay_duty(id=x['id'], card='{facts.card}', token=t, {field}='{value}')"
    words, reward, *_ = env.step(f"<answer>{paid}\nuser.done()</answer>")
    assert (reward, env.success) == (1.0, True), words


@pytest.mark.parametrize("form", ["code", "gpt_oss"])
def test_an_app_of_ones_own_is_played_by_all_references(parcels, form):
    env = Apps(
        extensions=(parcels.Parcels(),),
        templates=("redirect_parcel", "pay_duty"),
        quirks=5,
        actions=form,
        spare_calls=1,
    )
    assert all(successes(env, Reference.ORACLE, 40))
    scripted = successes(env, Reference.SCRIPTED, 80)
    assert sum(scripted[3::4]) > sum(scripted[0::4]) + 10
    assert sum(successes(env, Reference.RANDOM, 40)) == 0


def test_an_app_of_ones_own_travels_with_its_tasks_and_names_no_other(parcels):
    pack = Apps(extensions=[parcels.Parcels()]).sample_pack(split=Split.TEST, index=3, num_tasks=8)
    assert pickle.loads(pickle.dumps(pack)) == pack
    assert pack.id.startswith(Apps(extensions=[parcels.Parcels()]).name) != Apps().name
    with pytest.raises(ConfigError, match=r"data\.env\.extensions is \['parcels'\]"):
        Apps(extensions=[parcels.Parcels(), parcels.Parcels()])
