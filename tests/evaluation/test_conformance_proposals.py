"""What a world breaks where it makes tasks of proposals is found by `check`, each by one sentence."""

from dataclasses import replace

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.evaluation.conformance import check_world, proposals
from cod_lightning.types import Split
from tests.cases import each
from tests.evaluation.test_conformance import levers, raising


def writing(self, response, task):
    object.__setattr__(task.spec, "goal", "gold")
    return task


@each(
    ("members", "said"),
    [
        ({"offer": lambda self: "levers"}, "offer is a method; put @property before it"),
        ({"offer": None}, "offer is a NoneType; expected text"),
        ({"proposed": raising(SystemExit(3))}, "raised SystemExit: 3"),
        ({"proposed": lambda self, response, task: response}, "gave a str; expected a Task or None"),
        (
            {"proposed": lambda self, response, task: replace(task, spec=replace(task.spec, colours=COLOURS))},
            "changes what the pack hides",
        ),
        ({"proposed": writing}, "changes the pack's own task"),
        ({"proposed": lambda self, response, task: None}, "which is no task; write its `propose`"),
    ],
)
def test_a_world_whose_proposals_break_a_rule_is_named_with_an_example(members, said):
    world = levers(type("OwnProposals", (LeverProposals,), members))
    found = [one for verdict in check_world(world, HintContext("compact"), 3, 3) for one in verdict.broken]
    assert said in " ".join(found)


def test_an_offer_in_words_that_are_not_listed_is_named():
    players = next(one for one in Levers.companions if issubclass(one, Players))
    untaught = type("Untaught", (players,), {"demonstrator": raising(NotImplementedError())})
    own = type("OwnProposals", (LeverProposals,), {"offer": "Levers?"})
    world = type("Own", (Levers,), {"companions": (own, untaught, *Levers.companions)})(protocol="compact")
    found = [one for verdict in check_world(world, HintContext("compact"), 3, 3) for one in verdict.broken]
    assert found == ["offer shows 'Levers?', which words() does not list"]


@each("kind", [Levers, Doors])
@each("protocol", ["natural", "compact"])
def test_worlds_that_make_tasks_of_proposals_keep_the_rule(kind, protocol):
    world = kind(protocol=protocol)
    packs = [world.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(3)]
    assert not list(proposals(world, HintContext(protocol), packs))
