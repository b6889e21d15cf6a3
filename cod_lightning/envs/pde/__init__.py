"""PDE Discovery: find the hidden reaction term of a diffusion equation, the same for a whole pack."""

from cod_lightning.envs.pde.world import PDEDiscovery

__all__ = ["PDEDiscovery"]
