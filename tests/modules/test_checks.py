"""Options of the data and of the objective that have no meaning together are refused with key and reason."""

import pytest

from cod_lightning.credit.baselines import Accepted, AsymRE, RoleMean, TermsAlone
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.bandit import Bandit
from cod_lightning.methods.sdpo import SDPO
from cod_lightning.methods.self_imitation import SelfImitation
from cod_lightning.methods.signal_replay import SignalReplay
from cod_lightning.modules.checks import check_combination
from cod_lightning.objective.losses import GRPO, LOOP, OPMD, REC, RLOO
from cod_lightning.objective.terms import EntropyBonus
from tests.training.test_rollouts import data, module


@pytest.mark.parametrize("loss", [RLOO(), REC(clip="none")], ids=str)
def test_several_passes_are_refused_for_a_loss_in_which_the_ratio_has_no_say(loss):
    with pytest.raises(ConfigError, match=r"data\.passes_per_rollout is 2; expected 1 with model\.loss"):
        check_combination(module(loss=loss), data(passes_per_rollout=2))
    check_combination(module(loss=loss), data())


@pytest.mark.parametrize("loss", [REC(), REC(clip="none", importance_weights=True), GRPO(), LOOP(), OPMD()], ids=str)
def test_several_passes_are_taken_where_the_ratio_has_a_say(loss):
    check_combination(module(loss=loss), data(passes_per_rollout=3))


@pytest.mark.parametrize(
    ("options", "of_data", "said"),
    [
        ({"credit": TrajectoryCredit()}, {"program": Anchored()}, r"model\.credit is TrajectoryCredit"),
        ({"credit": TrajectoryCredit()}, {"program": Counterfactual()}, r"model\.credit is TrajectoryCredit"),
        ({"credit": TrajectoryCredit()}, {"program": BestOfN()}, r"model\.credit is TrajectoryCredit"),
        (
            {"baseline": Accepted()},
            {"program": BestOfN()},
            r"data\.program is BestOfN; expected left out with baseline=Accepted",
        ),
        (
            {"credit": TaskCredit()},
            {"program": Counterfactual()},
            r"unless updates take place, are trained",
        ),
        (
            {"credit": EpisodeCredit(style="sliding_window_mean", window=1)},
            {"program": Counterfactual()},
            r"unless updates take place, are trained",
        ),
        ({"credit": EpisodeCredit(style="sliding_window_mean", window=4)}, {}, r"at most data\.pack_size=3"),
        (
            {},
            {"program": Anchored(positions=(3,))},
            r"data\.program\.positions is \[3\]; expected positions from 1 to 2",
        ),
        ({}, {"program": Anchored(positions=(0,))}, r"siblings share the empty context already"),
        ({}, {"program": Anchored(positions=())}, r"data\.program\.positions is \[\]"),
        (
            {"baseline": Accepted()},
            {"program": Anchored()},
            r"data\.program is Anchored; expected left out with baseline=Accepted",
        ),
        (
            {"baseline": Accepted()},
            {"program": Counterfactual()},
            r"data\.program is Counterfactual; expected left out with baseline=Accepted",
        ),
        ({}, {"group_size": 1}, r"data\.group_size is 1; expected at least 2 with model\.baseline=GroupMean"),
        ({"baseline": Accepted(), "scale": "none"}, {"group_size": 1}, r"at least 2 with model\.baseline=Accepted"),
        ({"baseline": TermsAlone()}, {}, r"model\.baseline is TermsAlone; expected another one without model\.terms"),
        (
            {"baseline": TermsAlone(), "terms": [EntropyBonus()]},
            {"resample_packs": 1},
            r"data\.resample_packs is 1; expected left out with baseline=TermsAlone, which gives no pack an advantage",
        ),
        (
            {"baseline": Accepted(), "scale": "batch"},
            {},
            r"model\.scale is batch; expected left out with baseline=Accepted",
        ),
        (
            {"baseline": Accepted(), "scale": "group"},
            {},
            r"model\.scale is group; expected left out with baseline=Accepted",
        ),
        (
            {"baseline": Accepted(), "loss": SDPO()},
            {},
            r"model\.loss is SDPO; expected left out with baseline=Accepted",
        ),
        (
            {"loss": SDPO()},
            {"shuffle_episodes": True},
            r"data\.shuffle_episodes is True; expected false with .* a loss that compares siblings",
        ),
        (
            {},
            {"shuffle_episodes": True, "replay": SelfImitation()},
            r"data\.shuffle_episodes is True; expected false with a replay",
        ),
        (
            {},
            {"program": Counterfactual(program=ConnectTheDots(every=None))},
            r"data\.program is Counterfactual; expected one without attempts that measure contexts",
        ),
        (
            {"trained_kinds": ["solve"]},
            {"program": Counterfactual()},
            r"data\.program is Counterfactual; expected one without attempts that measure contexts",
        ),
    ],
)
def test_options_without_meaning_together_are_refused_with_the_reason(options, of_data, said):
    with pytest.raises(ConfigError, match=said):
        check_combination(module(**options), data(**of_data))


@pytest.mark.parametrize(
    ("options", "of_data"),
    [
        ({"trained_kinds": ["update"]}, {"program": Counterfactual(program=Anchored())}),
        ({"trained_kinds": ["solve"]}, {"program": Anchored(program=ConnectTheDots(every=None))}),
        ({"baseline": AsymRE(shift=0.0), "filter_packs": True}, {"resample_packs": 1, "replay": SignalReplay()}),
        ({"baseline": RoleMean(), "scale": "group"}, {"replay": SelfImitation()}),
        ({"baseline": RoleMean(), "filter_packs": True}, {"resample_packs": 1, "replay": SignalReplay()}),
        ({"baseline": AsymRE(), "filter_packs": True}, {"resample_packs": 1}),
    ],
)
def test_options_that_have_a_meaning_together_are_taken(options, of_data):
    check_combination(module(**options), data(**of_data))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: data(program=Anchored(attempts=1)),
            r"data\.program\.attempts is 1; expected at least 2, since an attempt is compared",
        ),
        (lambda: data(program=Anchored(fraction=0.0)), r"data\.program\.fraction is 0\.0"),
        (lambda: data(program=Counterfactual(attempts=0)), r"data\.program\.attempts is 0"),
        (lambda: data(program=Counterfactual(fraction=1.5)), r"data\.program\.fraction is 1\.5"),
        (lambda: data(passes_per_rollout=0), r"data\.passes_per_rollout is 0"),
        (lambda: data(resample_packs=-1), r"data\.resample_packs is -1"),
    ],
)
def test_numbers_without_meaning_are_refused_by_key(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_bandit_is_refused_with_a_baseline_whose_advantages_are_all_alike():
    made = data()
    check_combination(module(baseline=Accepted(), scale="none"), made)
    made.packs.source = Bandit()
    with pytest.raises(ConfigError, match=r"data\.source is Bandit; expected left out with baseline=Accepted"):
        check_combination(module(baseline=Accepted(), scale="none"), made)


@pytest.mark.parametrize("baseline", [TermsAlone(), Accepted(at_least=1.0)], ids=str)
def test_a_single_lifecycle_a_pack_goes_with_a_baseline_that_compares_nothing(baseline):
    check_combination(module(baseline=baseline, scale="none", terms=[EntropyBonus()]), data(group_size=1))
