"""TextWorld: houses in which things are to be found, generated and played by Microsoft's TextWorld.

Needs the extra `textworld` (MIT), which needs jericho (GPL-2.0 or later) at run time. Source: https://github.com/microsoft/TextWorld
"""

from cod_lightning.envs.textworld.world import TextWorldHouse as TextWorldHouse
