"""Terminal: file tasks at a simulated shell whose site has hidden ways of its own, the same for a whole pack."""

from cod_lightning.envs.terminal.world import Terminal as Terminal
