"""`plan`: the memory that a training would need, against a device's; no weights are loaded."""

from collections.abc import Sequence

from lightning.pytorch.cli import LightningArgumentParser

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.lightning_cli import quieten, start
from cod_lightning.commands.memory import plan_of, show
from cod_lightning.commands.train import TrainCLI
from cod_lightning.errors import ConfigError
from cod_lightning.models import PretrainedPolicy
from cod_lightning.terminal import Screen
from datamodules import RolloutDataModule
from modules import GRPOModule


class PlanCLI(TrainCLI):
    """`TrainCLI` that builds model and data with a Trainer on the CPU."""

    command = "plan"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        text = "Memory of the GPU in GiB; null: of the device here."
        parser.add_argument("--gpu_gb", type=float | None, default=None, help=text)
        text = "Accepted since configs of `fit` have it; without effect."
        parser.add_argument("--ckpt_path", type=str | None, default=None, help=text)
        parser.add_argument("--weights_only", type=bool | None, default=None, help=text)

    def before_instantiate_classes(self) -> None:
        """The Trainer of a GPU that is not here would refuse to be built."""
        self.asked_trainer = self.config.trainer.clone()
        for key, value in {"accelerator": "cpu", "strategy": "auto", "devices": 1, "precision": None}.items():
            setattr(self.config.trainer, key, value)
        super().before_instantiate_classes()

    def after_instantiate_classes(self) -> None:
        """No warm start."""


def run(argv: Sequence[str]) -> int:
    """Print the plan; 1 where it does not fit."""
    quieten()
    cli = start(PlanCLI, GRPOModule, RolloutDataModule, expand(argv).argv, execute=False)
    policy = cli.model.policy
    if not (isinstance(policy, PretrainedPolicy) and policy.path):
        expected = "a policy from a folder or the hub, whose size is worth a plan"
        raise ConfigError("model.policy", type(policy).__name__, expected, "Choose model=pretrained, lora or qlora.")
    if (gpu_gb := cli.config.gpu_gb) is not None and not gpu_gb > 0:
        raise ConfigError("--gpu_gb", gpu_gb, "above 0", "24 is a common one.")
    plan = plan_of(cli.model, cli.datamodule, cli.asked_trainer, gpu_gb)
    show(plan, Screen())
    return 0 if plan.fits else 1
