"""An observer of a rollout, called for every episode as it ends, so that the long part of a step shows progress."""

from cod_lightning.types import Episode, Lifecycle


class RolloutMonitor:
    """Does nothing; subclasses show something. Called from the rollout's own thread, so be quick."""

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        """A rollout of that many lifecycles through packs of `num_tasks` tasks starts."""

    def episode(self, episode: Episode) -> None:
        """An episode has ended."""

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        """A lifecycle has ended."""

    def end(self) -> None:
        """The rollout is over, or was broken off."""
