"""What watches and serves a training, named from YAML as `callbacks.NAME`."""

from callbacks.evaluation import Evaluation as Evaluation
from callbacks.lifecycle_table import LifecycleTable as LifecycleTable
from callbacks.mismatch_guard import MismatchGuard as MismatchGuard
from callbacks.notes import Notes as Notes
from callbacks.progress import Progress as Progress
from callbacks.step_profile import StepProfile as StepProfile
from callbacks.tensorboard import PositionCurve as PositionCurve
from callbacks.tensorboard import Sample as Sample
from callbacks.throughput import Staleness as Staleness
from callbacks.throughput import Throughput as Throughput
from callbacks.token_budget import TokenBudget as TokenBudget
from callbacks.transcripts import Transcripts as Transcripts
from callbacks.weight_sync import WeightSync as WeightSync
