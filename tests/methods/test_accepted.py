"""What is accepted is imitated, and the rest left out."""

from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.credit.table import EpisodeFacts, episode_table
from cod_lightning.methods.accepted import Accepted
from tests.cases import each
from tests.credit_tables import random_table, returns_of


@each("returns", [returns_of(EpisodeCredit(), random_table(seed, missing=0.25)) for seed in range(8)])
@each("at_least", [None, 0.4])
def test_what_is_accepted_has_an_advantage_of_one_and_the_rest_is_left_out(returns, at_least):
    found = Accepted(at_least=at_least)(returns)
    for g in range(3):
        for e in range(7):
            alive = [k for k in range(5) if returns.valid[g, k, e]]
            mean = sum(returns.values[g, k, e].item() for k in alive) / max(1, len(alive))
            for k in range(5):
                bar = mean + 1e-6 if at_least is None else at_least
                accepted = k in alive and returns.values[g, k, e].item() >= bar
                assert bool(found.valid[g, k, e]) == accepted
                assert found.values[g, k, e].item() == float(accepted)
    assert found.valid.any()


@each("scale", ["group", "batch"])
def test_what_is_accepted_weighs_1_whatever_the_scale_is(scale):
    table = episode_table(
        [[EpisodeFacts(k, 0, None, True, 0, 0, reward, 3) for k, reward in enumerate((0.2, 0.9, 1.0))]]
    )
    found = Credit(EpisodeCredit(), Accepted(), scale)(table)
    assert found.advantages.nan_to_num(0).tolist() == [0.0, 1.0, 1.0]
