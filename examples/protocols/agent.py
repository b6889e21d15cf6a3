import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.exceptions import AgentsException
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def solve(task):
    guesses, hidden = [], task["key"]

    @function_tool
    def guess(number: int) -> str:
        """Guess the number."""
        guesses.append(number)
        return "right" if number == hidden else "too low" if number < hidden else "too high"

    client = AsyncOpenAI(base_url=task["base_url"], api_key=task["api_key"], max_retries=0)
    model = OpenAIChatCompletionsModel(model=task["model"], openai_client=client)
    agent = Agent(name="guesser", instructions="Use the tool, at most three times.", tools=[guess], model=model)
    try:
        await Runner.run(agent, task["prompt"], max_turns=4)
    except AgentsException as error:  # such as a call of a tool that does not exist
        return {"reward": 0.0, "feedback": f"The agent stopped: {type(error).__name__}."}
    won = hidden in guesses[:3]
    return {"reward": float(won), "feedback": f"The guesses were {guesses}: {'won' if won else 'lost'}."}


for line in sys.stdin:
    print(json.dumps(asyncio.run(solve(json.loads(line)))), flush=True)
