"""Grid navigation: cheap routes with an exact number of moves over a hidden map of costs that a pack shares."""

from cod_lightning.envs.grid.world import GridNavigation as GridNavigation
