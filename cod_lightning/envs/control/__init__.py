"""Optimal Control: steer a point whose decay and gain are hidden, with one formula per task."""

from cod_lightning.envs.control.world import OptimalControl as OptimalControl
