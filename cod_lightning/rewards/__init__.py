"""Parts of an episode's reward: the world's own, the context's own, format, length, judges."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.rewards.answer import BrokenRule as BrokenRule
    from cod_lightning.rewards.answer import FormatReward as FormatReward
    from cod_lightning.rewards.base import ContextReward as ContextReward
    from cod_lightning.rewards.base import Reward as Reward
    from cod_lightning.rewards.base import SiblingReward as SiblingReward
    from cod_lightning.rewards.base import WorldReward as WorldReward
    from cod_lightning.rewards.judge import JudgeReward as JudgeReward
    from cod_lightning.rewards.pairwise import Pairwise as Pairwise
    from cod_lightning.rewards.pairwise import PairwiseJudge as PairwiseJudge

__getattr__ = lazily(__name__, __file__)
