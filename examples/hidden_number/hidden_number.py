"""A world of your own in one file: guess a number that stays the same in all tasks of a pack."""

import random
from dataclasses import dataclass

from cod_lightning.envs.answers import answer_of, quoted
from cod_lightning.envs.base import TextEnv, split_of_text, text_space
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Pack, Split, Task


@dataclass(frozen=True)
class Secret:
    number: int


class HiddenNumber(TextEnv):
    """Guess the hidden number.

    Args:
        largest: The number lies in 1..largest.
        max_turns: Guesses per task.
    """

    observation_space = action_space = text_space()
    success, status = False, EpisodeStatus.COMPLETED

    def __init__(self, largest: int = 30, max_turns: int = 3) -> None:
        self.largest, self.max_turns = largest, max_turns
        self.name = f"hidden_number-{largest}"

    @property
    def rules(self) -> str:
        return f"Guess a number from 1 to {self.largest} in {self.max_turns} guesses. Answer: <answer>NUMBER</answer>"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        mine = [n for n in range(1, self.largest + 1) if split_of_text(str(n)) is split]
        secret = Secret(rng.choice(mine))
        tasks = tuple(Task(id=str(n), seed=n, spec=secret) for n in range(num_tasks))
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=secret.number, tasks=tasks)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        drawn = Secret(int(self.np_random.integers(1, self.largest + 1)))
        self.number = options["task"].spec.number if options else drawn.number
        self.turns, self.success, self.status = 0, False, EpisodeStatus.COMPLETED
        return "Your first guess?", {}

    def step(self, action: str):
        guess, complaint = answer_of(action)
        if complaint or not (guess.isascii() and guess.isdigit() and len(guess) < 4):
            self.status = EpisodeStatus.MALFORMED
            return f"Not a number: {complaint or quoted(guess)}. The task is over.", 0.0, True, False, {}
        self.turns, self.success = self.turns + 1, int(guess) == self.number
        verdict = "right" if self.success else "too low" if int(guess) < self.number else "too high"
        late = self.turns == self.max_turns and not self.success
        self.status = EpisodeStatus.TRUNCATED if late else EpisodeStatus.COMPLETED
        return f"{int(guess)} is {verdict}.", float(self.success), self.success, late, {}
