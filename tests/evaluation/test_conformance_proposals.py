"""What a world breaks where it makes tasks of proposals is found by `check`, each by one sentence."""

from dataclasses import replace

from cod_lightning.contexts import HintContext
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.evaluation.conformance import verdict_on_proposals
from cod_lightning.evaluation.conformance_turns import members
from cod_lightning.evaluation.verdicts import verdict_on
from cod_lightning.types import Split
from tests.cases import each
from tests.evaluation.test_conformance import levers, raising


def proposing(**members):
    return levers(type("OwnProposals", (LeverProposals,), members))


def writing(self, response, task):
    object.__setattr__(task.spec, "goal", "gold")
    return task


def of_the_task(self):
    return f"want={self.env._task.goal}"


@each(
    ("world", "said"),
    [
        (proposing(offer=lambda self: "levers"), "offer is a method; put @property before it"),
        (proposing(offer=None), "offer is a NoneType; expected text"),
        (proposing(offer="Levers?"), "offer shows 'Levers?', which words() does not list"),
        (proposing(offer=property(of_the_task)), "offer differs between tasks of pack"),
        (proposing(proposed=raising(ValueError("no such colour"))), "raised ValueError: no such colour"),
        (proposing(proposed=raising(SystemExit(3))), "raised SystemExit: 3"),
        (proposing(proposed=lambda self, response, task: response), "gave a str; expected a Task or None"),
        (
            proposing(proposed=lambda self, response, task: replace(task, spec=response)),
            "made a task with a str as its spec",
        ),
        (
            proposing(proposed=lambda self, response, task: replace(task, spec=replace(task.spec, colours=COLOURS))),
            "changes what the pack hides",
        ),
        (proposing(proposed=writing), "changes the pack's own task"),
        (
            proposing(proposed=lambda self, response, task: replace(task, spec=replace(task.spec, goal="pink"))),
            "shows 'want=pink', which words() does not list",
        ),
        (proposing(proposed=lambda self, response, task: None), "which is no task; write its `propose`"),
    ],
)
def test_a_world_whose_proposals_break_a_rule_is_named_with_an_example(world, said):
    packs = [world.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(3)]
    form = verdict_on("the form", lambda: members(world))
    found = form if form.broken else verdict_on_proposals(world, HintContext("compact"), packs)
    assert said in " ".join(found.broken)


@each(
    ("world", "remark"),
    [
        *((kind(protocol=protocol), "") for kind in (Levers, Doors) for protocol in ("natural", "compact")),
        (FrozenLakeObscure(), "the world asks for none"),
    ],
)
def test_worlds_that_make_tasks_of_proposals_keep_the_rule_and_others_have_none(world, remark):
    packs = [world.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(3)]
    found = verdict_on_proposals(world, HintContext(getattr(world, "protocol", "natural")), packs)
    assert (found.broken, found.remark) == ((), remark)
