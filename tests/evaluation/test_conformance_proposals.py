"""What a world breaks where it makes tasks of proposals is found by `check`, each by one sentence."""

from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.evaluation.conformance_form import members
from cod_lightning.evaluation.conformance_proposals import verdict_on_proposals
from cod_lightning.evaluation.verdicts import verdict_on
from cod_lightning.types import Split


class OfferMethodProposals(LeverProposals):
    def offer(self):
        return "levers"


class OfferMethod(Levers):
    companions = (OfferMethodProposals, *Levers.companions)


class OfferNoneProposals(LeverProposals):
    offer = None


class OfferNone(Levers):
    companions = (OfferNoneProposals, *Levers.companions)


class OfferUnlistedProposals(LeverProposals):
    offer = "Levers?"


class OfferUnlisted(Levers):
    companions = (OfferUnlistedProposals, *Levers.companions)


class OfferOfTheTaskProposals(LeverProposals):
    @property
    def offer(self):
        return f"want={self.env._task.goal}"


class OfferOfTheTask(Levers):
    companions = (OfferOfTheTaskProposals, *Levers.companions)


class RaisingProposals(LeverProposals):
    def proposed(self, response, task):
        raise ValueError("no such colour")


class Raising(Levers):
    companions = (RaisingProposals, *Levers.companions)


class LeavingProposals(LeverProposals):
    def proposed(self, response, task):
        raise SystemExit(3)


class Leaving(Levers):
    companions = (LeavingProposals, *Levers.companions)


class WordsProposals(LeverProposals):
    def proposed(self, response, task):
        return response


class Words(Levers):
    companions = (WordsProposals, *Levers.companions)


class OtherSpecProposals(LeverProposals):
    def proposed(self, response, task):
        return replace(task, spec=response)


class OtherSpec(Levers):
    companions = (OtherSpecProposals, *Levers.companions)


class EasierProposals(LeverProposals):
    def proposed(self, response, task):
        return replace(task, spec=replace(task.spec, colours=COLOURS))


class Easier(Levers):
    """The lever of the proposed colour is always the first."""

    companions = (EasierProposals, *Levers.companions)


class WritingProposals(LeverProposals):
    def proposed(self, response, task):
        object.__setattr__(task.spec, "goal", "gold")
        return task


class Writing(Levers):
    companions = (WritingProposals, *Levers.companions)


class UnknownProposals(LeverProposals):
    def proposed(self, response, task):
        return replace(task, spec=replace(task.spec, goal="pink"))


class Unknown(Levers):
    companions = (UnknownProposals, *Levers.companions)


class DeafProposals(LeverProposals):
    def proposed(self, response, task):
        return None


class Deaf(Levers):
    companions = (DeafProposals, *Levers.companions)


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (OfferMethod, "offer is a method; put @property before it"),
        (OfferNone, "offer is a NoneType; expected text"),
        (OfferUnlisted, "offer says 'Levers?', which words() does not list"),
        (OfferOfTheTask, "offer differs between tasks of pack"),
        (Raising, "raised ValueError: no such colour"),
        (Leaving, "raised SystemExit: 3"),
        (Words, "gave a str; expected a Task or None"),
        (OtherSpec, "made a task with a str as its spec"),
        (Easier, "changes colours, which is the same in all tasks of a pack"),
        (Writing, "changes the pack's own task"),
        (Unknown, "shows 'want=pink', which words() does not list"),
        (Deaf, "which is no task; write its `propose`"),
    ],
)
def test_a_world_whose_proposals_break_a_rule_is_named_with_an_example(world, said):
    own = world(protocol="compact")
    packs = [own.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(3)]
    form = verdict_on("the form", lambda: members(own))
    found = form if form.broken else verdict_on_proposals(own, HintContext("compact"), packs, ("colours",))
    assert said in " ".join(found.broken)


@pytest.mark.parametrize("world", [Levers(), Doors(), Levers(protocol="compact"), Doors(protocol="compact")])
def test_worlds_that_make_tasks_of_proposals_keep_the_rule(world):
    packs = [world.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(3)]
    found = verdict_on_proposals(world, HintContext(world.protocol), packs, ())
    assert (found.broken, found.remark) == ((), "")


def test_a_world_without_proposals_has_nothing_to_keep():
    world = FrozenLakeObscure()
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    found = verdict_on_proposals(world, HintContext(), [pack], ())
    assert (found.broken, found.remark) == ((), "the world asks for none")
