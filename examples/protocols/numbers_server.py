import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import Field


class Guess(Action):
    number: int = Field(description="Your guess.")


class Verdict(Observation):
    text: str


class HiddenNumber(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, hidden=1, **kwargs):
        self.hidden, self.turns = hidden, 0
        return Verdict(text="Your first guess?")

    def step(self, action, timeout_s=None, **kwargs):
        self.turns += 1
        right = action.number == self.hidden
        verdict = "right" if right else "too low" if action.number < self.hidden else "too high"
        text = f"{action.number} is {verdict}."
        return Verdict(text=text, reward=float(right), done=right or self.turns == 3)

    @property
    def state(self):
        return State(step_count=self.turns)


app = create_fastapi_app(HiddenNumber, Guess, Verdict, max_concurrent_envs=256)
if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
