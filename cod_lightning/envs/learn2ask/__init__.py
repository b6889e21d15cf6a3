"""Learn2Ask: ask a patient for what is missing, or stop; in a synthetic clinic with a hidden protocol, or on prepared dialogues."""

from cod_lightning.envs.learn2ask.endpoint import EndpointJudge as EndpointJudge
from cod_lightning.envs.learn2ask.judge import Judge as Judge
from cod_lightning.envs.learn2ask.judge import JudgeVerdict as JudgeVerdict
from cod_lightning.envs.learn2ask.judge import RuleJudge as RuleJudge
from cod_lightning.envs.learn2ask.world import Learn2Ask as Learn2Ask
