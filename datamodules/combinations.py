"""Options of the data and of the objective that have no meaning together, and would cost a training without a word."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.credit.credited import Credit
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import check_oracle
from cod_lightning.lifecycles import asks, outline
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.terms import LossTerm
from cod_lightning.rewards import SiblingReward
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import EpisodeKind


def check_combination(data: Any, credit: Credit, loss: PolicyLoss, terms: Sequence[LossTerm]) -> None:
    """Raise `ConfigError` for the first option of the RolloutDataModule that has no meaning beside these of the GRPOModule."""
    for refuses, key, value, expected in _rules(data, credit, loss, terms):
        if refuses:
            shown = value if isinstance(value, int | str | list) else type(value).__name__
            raise ConfigError(key, shown, expected, "Change one of the two.")


def _rules(
    data: Any, credit: Credit, loss: PolicyLoss, terms: Sequence[LossTerm]
) -> Iterator[tuple[object, str, object, str]]:
    """Whether it refuses; key, value, what is expected."""
    baseline = credit.baseline

    expected = "left out with a model.loss that compares siblings, without which an episode is replayed"
    yield data.replay is not None and loss.compares_siblings, "data.replay", data.replay, expected

    there = {step.kind for step in outline(data.program, data.pack_size, data.context.updates)}
    there -= {data.frozen.kind} if data.frozen else set()
    kinds, left = [str(kind) for kind in credit.kinds], ", ".join(sorted(there)) or "none is left"
    expected = f"a kind that data.program has and data.frozen does not play ({left})"
    yield not there & {*credit.kinds}, "model.trained_kinds", kinds, expected
    unmeasured = EpisodeKind.UPDATE not in there & {*credit.kinds}
    expected = "one without attempts that measure what an update wrote, since none is trained"
    yield {*data.program.beside} - {"own"} and unmeasured, "data.program", data.program, expected

    needs = not credit.criticised or credit.filtered or data.resample_packs or data.replay is not None
    expected = "at least 2 where siblings are compared, as all but model.critic and baseline=TermsAlone do, and some data.source"
    compared = (baseline.compares and needs) or loss.compares_siblings or data.packs.source.compares
    compared = compared or any(isinstance(part, SiblingReward) for part in data.rewards.values())
    yield data.group_size < 2 and compared, "data.group_size", data.group_size, expected

    if isinstance(baseline, TermsAlone):
        expected = "left out with baseline=TermsAlone, beside which no pack is worth a replay"
        yield data.replay is not None, "data.replay", data.replay, expected
        expected = "another one without model.terms, since its advantages are 0, so that nothing would be trained"
        yield not terms, "model.baseline", baseline, expected
        expected = "another one with model.critic, whose advantages come of the rewards that here have no say"
        yield credit.criticised, "model.baseline", baseline, expected
    if not baseline.scales:
        named = type(baseline).__name__
        expected = (
            f"left out with baseline={named}, whose advantages are in no units of reward: there is nothing to compare"
        )
        yield data.program.beside, "data.program", data.program, expected
        yield loss.compares_siblings, "model.loss", loss, expected


def check_scorers(data: Any, scorers: Mapping[str, Scorer]) -> None:
    """Refuse a scorer that cannot score tokens of the vocabulary of the RolloutDataModule, or lacks an oracle."""
    for name, scorer in scorers.items():
        scorer.check(f"model.scorers.{name}", data.chat.tokenizer.get_vocab())
        if scorer.needs_oracle:
            check_sees(data, f"model.scorers.{name}", type(scorer).__name__)


def check_sees(data: Any, key: str, scorer: str) -> None:
    """Refuse, for this key and scorer, an environment whose oracle writes no context for a teacher to see, and a program whose
    tasks are shown texts, or whose updates see attempts, that the teacher is not shown."""
    first = drawn_pack(data.env, data.pack_size, data.seed)
    remedy = "Choose a scorer that sees what the policy sees."
    if data.program.held_out.beside or not all(ask.chooses_task for ask in asks(data.program, data.pack_size)):
        expected = f"none with data.program={type(data.program).__name__}, whose texts or attempts it is not shown"
        raise ConfigError(key, scorer, expected, remedy)
    check_oracle(data.env, first, data.context, key, scorer, remedy)
