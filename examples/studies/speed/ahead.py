"""What rollouts further ahead save by arithmetic: a step's time, by how unlike the times of rollouts are. Nothing is played.

    python examples/studies/speed/ahead.py

Rollout m begins when rollout m-1 is over and training on rollout m-k has begun; training on rollout n begins when training on n-1
and rollout n are over. A rollout takes a lognormal time with mean 1, an update of it 1, a sync nothing.
"""

import math
import random

NUM_STEPS = 20_000
SPREADS = (0.1, 0.3, 0.6, 1.0)
"""Standard deviations of a rollout's time."""
BOUNDS = (0, 1, 2, 3, 4, 8)


def step_time(bound: int, spread: float) -> float:
    """Mean over a run; 1 is the least."""
    drawn, sigma = random.Random(0), math.sqrt(math.log(1 + spread**2))
    played = trained = 0.0
    began: list[float] = []
    for number in range(NUM_STEPS):
        before = trained if not bound else began[number - bound] if number >= bound else 0.0
        played = max(played, before) + drawn.lognormvariate(-(sigma**2) / 2, sigma)
        began.append(max(trained, played))
        trained = began[-1] + 1.0
    return trained / NUM_STEPS


def main() -> None:
    print("| standard deviation of a rollout's time |", " | ".join(f"bound {bound}" for bound in BOUNDS), "|")
    print("|", " | ".join(["---"] * (1 + len(BOUNDS))), "|")
    for spread in SPREADS:
        print(f"| {spread} |", " | ".join(f"{step_time(bound, spread):.2f}" for bound in BOUNDS), "|")


if __name__ == "__main__":
    main()
