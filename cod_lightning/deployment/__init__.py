"""Agents that live on: a context kept over days, task after task."""

from cod_lightning.deployment.agent import DeployedAgent as DeployedAgent
from cod_lightning.deployment.store import ContextStore as ContextStore
