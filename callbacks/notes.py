"""What a training rollout shows and a user should know before hours pass."""

import sys
from collections.abc import Sequence
from typing import Any

from callbacks.runner import RolloutCallback
from cod_lightning.types import Group, StopReason

_CUT = 0.5
_PATIENCE = 3


class Notes(RolloutCallback):
    """Prints a note on standard error, once for each finding, from the groups of rank 0.

    - Half of the turns or more end at `data.max_new_tokens`, so that what is trained on are beginnings of answers.
    - In three rollouts in a row no two siblings differ in the reward of any task, and no other model teaches.
    """

    def __init__(self) -> None:
        self.num_equal = 0
        self.noted: list[str] = []

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label != "train" or not self._trainer.is_global_zero:
            return
        trainer: Any = self._trainer
        bound = trainer.datamodule.max_new_tokens
        lives = [life for group in groups for life in group.lifecycles]
        stops = [turn.stop for life in lives for episode in life.episodes for turn in episode.turns]
        num_cut = sum(stop is StopReason.LENGTH for stop in stops)
        if num_cut and num_cut >= _CUT * len(stops):
            self._note(
                "cut",
                f"{num_cut / len(stops):.0%} of {len(stops):,} turns end at data.max_new_tokens={bound}, in the middle "
                "of an answer. Raise it, or look at lifecycles/train.jsonl for what the policy says.",
            )
        self.num_equal = 0 if any(map(_differ, groups)) else self.num_equal + 1
        if self.num_equal >= _PATIENCE and not trainer.lightning_module.scorers:
            self._note(
                "equal",
                f"in {self.num_equal} rollouts in a row siblings had equal rewards in every task, so that nothing is "
                "learnt from them: tasks are too hard or too easy for the policy. Look at lifecycles/train.jsonl; easier settings, "
                "a warm start or a larger data.group_size make them differ.",
            )

    def _note(self, finding: str, text: str) -> None:
        if finding not in self.noted:
            self.noted.append(finding)
            print(f"note: {text}", file=sys.stderr)

    def state_dict(self) -> dict[str, Any]:
        return {"num_equal": self.num_equal, "noted": self.noted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_equal, self.noted = state_dict["num_equal"], state_dict["noted"]


def _differ(group: Group) -> bool:
    """Whether any two complete siblings, or any two attempts, differ in reward; so they do where there is nothing to compare."""
    whole = [life for life in group.lifecycles if not life.failed]
    curves = {tuple(solve.reward for solve in life.solves) for life in whole}
    attempts = {attempt.episode.reward for life in whole for attempt in life.attempts}
    return len(whole) < 2 or len(curves) > 1 or len(attempts) > 1
