import re

import httpx
import verifiers.v1 as vf

__all__ = ["ChatHarness", "NumberEnv", "NumberTaskset"]


class NumberData(vf.TaskData):
    hidden: int


class NumberTask(vf.Task[NumberData, vf.State, vf.TaskConfig]):
    pass


class NumberTaskset(vf.Taskset[NumberTask, vf.TasksetConfig]):
    def load(self):
        for hidden in (3, 8, 13, 21, 26, 30):
            yield NumberTask(NumberData(prompt="Your first guess?", hidden=hidden), self.config.task)


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """One request to the model for each word of the environment, in this process."""

    APPENDS_SYSTEM_PROMPT, SUPPORTS_RESUME, EXECUTES_CODE, NEEDS_CONTAINER = True, True, False, False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        system, prompt = self.resolve_prompt(data)
        if isinstance(prompt, str):
            prompt = [vf.UserMessage(content=prompt)]
        messages = [{"role": "system", "content": system}, *(one.model_dump(exclude_none=True) for one in prompt)]
        async with httpx.AsyncClient(timeout=None) as http:
            answer = await http.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(exit_code=0 if answer.is_success else 1, stdout="", stderr=answer.text)


class NumberEnvConfig(vf.EnvConfig):
    guesser: vf.AgentConfig = vf.AgentConfig(harness={"id": "hidden_number_v1"}, runtime=vf.SubprocessConfig())


class NumberEnv(vf.Env[NumberEnvConfig]):
    async def run(self, task, agents):
        async with agents.guesser.interaction(task) as guesser:
            segment, words, won = await guesser.turn(), "", False
            for number in range(3):
                found = re.fullmatch(r"(?s).*<answer>\s*(\d{1,3})\s*</answer>.*", segment.last_reply or "")
                if segment.terminated or found is None:
                    words = "Not a number. The task is over."
                    break
                guess, hidden = int(found[1]), task.data.hidden
                won = guess == hidden
                words = f"{guess} is {'right' if won else 'too low' if guess < hidden else 'too high'}."
                if won or number == 2:
                    break
                segment = await guesser.turn(words)
        guesser.trace.record_reward("right", float(won))
        guesser.trace.info["verdict"] = words
