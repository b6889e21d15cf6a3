"""Apps: tasks over several apps of a person, whose habits, like the site's quirks, are hidden and the same for a whole pack."""

from cod_lightning.envs.apps.world import Apps as Apps
