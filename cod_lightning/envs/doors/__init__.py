"""Doors: a world with many facts, of which each task needs few."""

from cod_lightning.envs.doors.world import Doors as Doors
