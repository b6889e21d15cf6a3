"""Invented domains: families of hidden rules over drawn names, all in one grammar."""

from cod_lightning.envs.invented.world import Invented as Invented
