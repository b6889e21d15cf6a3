"""What watches and serves a training, named from YAML as `cod_lightning.callbacks.NAME`."""

if __name__ != "cod_lightning.callbacks":  # from a checkout's folder; its classes would be there twice
    raise ImportError(f"import cod_lightning.callbacks: {__name__} is a part of that package")

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.callbacks.evaluation import Evaluation as Evaluation
    from cod_lightning.callbacks.notes import MismatchGuard as MismatchGuard
    from cod_lightning.callbacks.notes import Notes as Notes
    from cod_lightning.callbacks.progress import Progress as Progress
    from cod_lightning.callbacks.throughput import Throughput as Throughput
    from cod_lightning.callbacks.throughput import TokenBudget as TokenBudget
    from cod_lightning.callbacks.transcripts import Transcripts as Transcripts
    from cod_lightning.callbacks.weight_sync import WeightSync as WeightSync

__getattr__ = lazily(__name__, __file__)
