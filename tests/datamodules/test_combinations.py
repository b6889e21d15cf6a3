"""Options of the data and of the objective that have no meaning together are refused with key and reason."""

from dataclasses import dataclass

import pytest

from cod_lightning.callbacks import WeightSync
from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.credit.returns import TaskCredit, TrajectoryCredit
from cod_lightning.datamodules.combinations import check_combination
from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.methods.accepted import Accepted
from cod_lightning.methods.asymre import AsymRE
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.bandit import Bandit
from cod_lightning.methods.frozen_role import FrozenRole
from cod_lightning.methods.growth import Growth
from cod_lightning.methods.nft import NFT
from cod_lightning.methods.noisy import NoisyPairwiseJudge
from cod_lightning.methods.revisits import Revisits
from cod_lightning.methods.sdpo import SDPO
from cod_lightning.methods.self_imitation import SelfImitation
from cod_lightning.methods.signal_replay import SignalReplay
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.methods.value_head import ValueHead
from cod_lightning.modules import GRPOModule
from cod_lightning.objective.losses import REC, RLOO
from cod_lightning.objective.terms import EntropyBonus, LossTerm
from tests.cases import each
from tests.small_fit import small_data, small_fit, small_policy


def check(options, of_data):
    """Refuse objective and data with these options, if they have no meaning together."""
    module = GRPOModule(small_policy(), **options)
    check_combination(small_data(**of_data), module.credited, module.loss, module.terms)


@each(
    ("options", "of_data", "said"),
    [
        *(({"loss": loss}, {"replay": SignalReplay()}, r"data\.replay is SignalReplay") for loss in (SDPO(), NFT())),
        *(
            ({"trained_kinds": kinds}, of_data, r"model\.trained_kinds is \[")
            for kinds, of_data in (
                (["update"], {"program": ConnectTheDots(every=None)}),
                (["solve"], {"frozen": FrozenRole("solve", "x")}),
                (None, {"frozen": FrozenRole("solve", "x"), "program": ConnectTheDots(every=None)}),
            )
        ),
        *(
            (
                {"trained_kinds": kinds},
                {"program": Counterfactual(program=Anchored(program=ConnectTheDots(every=every)))} | of_data,
                r"data\.program is Counterfactual",
            )
            for kinds, every, of_data in (
                (None, None, {}),
                (["solve"], 1, {}),
                (None, 1, {"frozen": FrozenRole("update", "x")}),
                (None, 1, {"context": TranscriptContext()}),
            )
        ),
        ({"baseline": Accepted()}, {"program": BestOfN()}, r"data\.program is BestOfN"),
        ({"baseline": Accepted()}, {"program": Anchored()}, r"data\.program is Anchored"),
        ({}, {"group_size": 1}, r"data\.group_size is 1"),
        ({"baseline": Accepted(), "scale": "none"}, {"group_size": 1}, r"data\.group_size is 1"),
        ({"loss": SDPO(), "critic": ValueHead()}, {"group_size": 1}, r"data\.group_size is 1"),
        ({"filter_packs": True, "critic": ValueHead()}, {"group_size": 1}, r"data\.group_size is 1"),
        ({"critic": ValueHead()}, {"group_size": 1, "resample_packs": 2}, r"data\.group_size is 1"),
        ({"critic": ValueHead()}, {"group_size": 1, "replay": SelfImitation()}, r"data\.group_size is 1"),
        *(
            ({"critic": ValueHead()}, {"group_size": 1, "source": of}, r"data\.group_size is 1")
            for of in (Bandit(), Revisits())
        ),
        ({"critic": ValueHead()}, {"group_size": 1, "rewards": {"a": NoisyPairwiseJudge()}}, r"data\.group_size is 1"),
        ({"baseline": TermsAlone(), "terms": [EntropyBonus()]}, {"replay": SignalReplay()}, r"data\.replay is Signal"),
        ({"baseline": TermsAlone()}, {}, r"model\.baseline is TermsAlone"),
        (
            {"baseline": TermsAlone(), "terms": [EntropyBonus()], "critic": ValueHead()},
            {},
            r"model\.baseline is TermsAlone; .*model\.critic",
        ),
        ({"baseline": Accepted(), "loss": SDPO()}, {}, r"model\.loss is SDPO"),
    ],
)
def test_options_without_meaning_together_are_refused_with_the_reason(options, of_data, said):
    with pytest.raises(ConfigError, match=said):
        check(options, of_data)


@each(
    ("options", "of_data"),
    [
        ({"loss": SDPO()}, {}),
        ({"loss": NFT()}, {}),
        ({"baseline": Accepted(), "scale": "batch"}, {}),
        ({}, {"replay": SignalReplay(), "passes_per_rollout": 3}),
        *(
            ({"baseline": baseline, "scale": "none", "terms": [EntropyBonus()]}, {"group_size": 1})
            for baseline in (TermsAlone(), Accepted(at_least=1.0))
        ),
        ({"trained_kinds": ["update"]}, {"program": Counterfactual(program=Anchored())}),
        ({"trained_kinds": ["solve"]}, {"program": Anchored(program=ConnectTheDots(every=None))}),
        ({"baseline": AsymRE(shift=0.0), "filter_packs": True}, {"resample_packs": 1, "replay": SignalReplay()}),
        ({"baseline": AsymRE(), "scale": "group"}, {"replay": SelfImitation()}),
        ({"baseline": AsymRE(), "filter_packs": True}, {"resample_packs": 1}),
        ({"baseline": TermsAlone(), "terms": [EntropyBonus()], "filter_packs": True}, {"source": Revisits()}),
        ({"baseline": TermsAlone(), "terms": [EntropyBonus()]}, {"resample_packs": 2}),
        ({"critic": ValueHead()}, {"group_size": 1, "source": Growth()}),
        ({"credit": TaskCredit()}, {"program": Counterfactual()}),
        *(({"critic": ValueHead()}, {"program": of, "group_size": 1}) for of in (Anchored(), Counterfactual())),
        ({"credit": TrajectoryCredit()}, {"program": Anchored()}),
        ({"loss": SDPO()}, {"shuffle_episodes": True}),
        ({}, {"shuffle_episodes": True, "replay": SelfImitation()}),
        ({"loss": RLOO()}, {"passes_per_rollout": 2, "max_staleness": 1, "replay": SignalReplay()}),
    ],
)
def test_options_that_have_a_meaning_together_are_taken(options, of_data):
    check(options, of_data)


@dataclass(frozen=True, kw_only=True)
class Sum(LossTerm):
    coefficient: float = 0.1

    def __call__(self, inputs):
        return inputs.policy_logprobs.sum()


class Misspelt(Sum):
    def __call__(self, inputs):
        return inputs.logprobs.sum()


class Bare(LossTerm):
    def __call__(self, inputs):
        raise AssertionError("never asked")


class Mean(REC):
    def __call__(self, inputs):
        return inputs.policy_logprobs.mean()


@each(
    ("options", "said"),
    [
        ({"terms": [Sum()]}, r"model\.terms is Sum; .*returns a Tensor"),
        (
            {"terms": [Misspelt()]},
            r"model\.terms is Misspelt; .*no attribute 'logprobs', .*test_combinations\.py:\d+\)",
        ),
        ({"terms": [Bare()]}, r"model\.terms is Bare; .* `coefficient`"),
        ({"loss": Mean()}, r"model\.loss is Mean; .* LossOutputs"),
    ],
)
def test_a_loss_or_a_term_of_ones_own_that_answers_wrongly_ends_the_run_in_one_line(tmp_path, options, said):
    with pytest.raises(ConfigError, match=said):
        small_fit(tmp_path, WeightSync(), module=options)
