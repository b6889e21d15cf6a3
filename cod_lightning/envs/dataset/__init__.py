"""Questions on disk as a world: JSON Lines, Parquet, folders of Hugging Face's datasets, and how answers are scored."""

from cod_lightning.envs.dataset.scorers import AnswerScorer as AnswerScorer
from cod_lightning.envs.dataset.scorers import CodeTests as CodeTests
from cod_lightning.envs.dataset.scorers import ExactMatch as ExactMatch
from cod_lightning.envs.dataset.scorers import NumericMatch as NumericMatch
from cod_lightning.envs.dataset.scorers import RegexMatch as RegexMatch
from cod_lightning.envs.dataset.scorers import Unscored as Unscored
from cod_lightning.envs.dataset.world import DatasetWorld as DatasetWorld
