"""Ways: worlds in fused words whose pack hides which of four words works for each of a few slots."""

from cod_lightning.envs.ways.apps import AppsWays as AppsWays
from cod_lightning.envs.ways.terminal import TerminalWays as TerminalWays
