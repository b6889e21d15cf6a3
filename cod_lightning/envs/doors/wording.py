"""Two renderings of the doors: sentences for language models, fused words for tiny policies."""

import re
from collections.abc import Mapping, Sequence

from cod_lightning.envs.answers import answer_of, code_of
from cod_lightning.envs.base import Unchanging

KEYS = ("red", "green", "blue", "gold")
Facts = Mapping[int, str]
"""Key of a door, by the door's number."""


class _DoorWords(Unchanging):
    """What both renderings share."""

    _fact: re.Pattern[str]
    offer: str
    """Asks for a door to be chosen."""

    def __init__(self, num_doors: int) -> None:
        self.num_doors = num_doors

    def parse(self, text: str) -> dict[int, str]:
        """Facts stated in the text; of two about one door the later one counts."""
        found = ((int(door), key) for door, key in self._fact.findall(text))
        return {door: key for door, key in found if key in KEYS and 1 <= door <= self.num_doors}

    def key_of(self, response: str) -> tuple[str, str]:
        """(key, "") or ("", which rule was broken); case does not matter, and what follows the key's name is ignored.

        >>> CompactDoors(4).key_of("7 <answer>Key_blue</answer>"), NaturalDoors(4).key_of("<answer>KEY Blue</answer>")
        (('blue', ''), ('blue', ''))
        """
        answer, complaint = answer_of(response)
        if complaint:
            return "", complaint
        match = re.match(r"key[\s_]+([a-z]+)", answer.lower())
        if match is None:
            return "", "the answer is not 'Key' and a colour"
        return (match[1], "") if match[1] in KEYS else ("", f"the colour is not one of {', '.join(KEYS)}")


class CompactDoors(_DoorWords):
    """`open=7`, then `not=red`, and at the end `win 7=blue`; what an open door shows of others is a fact like any other."""

    _fact = re.compile(r"(?<!\S)(\d{1,3})=(\w+)", re.ASCII)
    offer = "doors"

    def rules(self, max_turns: int) -> str:
        return "doors"

    def observation(self, door: int, tried: Sequence[str], max_turns: int) -> str:
        return " ".join([f"open={door}", *(f"not={key}" for key in tried[-1:])])

    def feedback(
        self, outcome: str, door: int, tried: Sequence[str], opens: str, glimpsed: Facts, complaint: str
    ) -> str:
        own = {door: opens} if outcome == "win" else {}
        return " ".join([outcome, *(f"{number}={key}" for number, key in {**own, **glimpsed}.items())])

    def respond(self, door: int, key: str) -> str:
        return f"open={door} <answer>Key_{key}</answer>"

    def propose(self, door: int) -> str:
        return f"open={door}"

    def door_of(self, response: str) -> int:
        """The door that is proposed, in one word like that of a task; 0 for any other text.

        >>> CompactDoors(8).door_of("open=7 "), CompactDoors(8).door_of("open=7 open=8"), CompactDoors(8).door_of("open=9")
        (7, 0, 0)
        """
        match = re.fullmatch(r"open=([1-9]\d{0,2})", response.strip(), re.ASCII)
        return int(match[1]) if match and int(match[1]) <= self.num_doors else 0

    def seen(self, observation: str) -> tuple[int, tuple[str, ...]]:
        door = re.search(r"open=(\d+)", observation)
        return int(door[1]) if door else 1, tuple(re.findall(r"not=(\w+)", observation))

    def write(self, facts: Facts) -> str:
        return " ".join(f"{door}={facts[door]}" for door in sorted(facts)) or "nothing"

    def words(self) -> tuple[str, ...]:
        doors = range(1, self.num_doors + 1)
        facts = (f"{door}={key}" for door in doors for key in KEYS)
        answers = (f"<answer>Key_{key}</answer>" for key in KEYS)
        tried = (f"not={key}" for key in KEYS)
        return (
            "doors",
            *(f"open={door}" for door in doors),
            *tried,
            *facts,
            *answers,
            "nothing",
            "win",
            "miss",
            "malformed",
        )


class NaturalDoors(_DoorWords):
    """Full sentences."""

    _fact = re.compile(r"Door (\d{1,3})(?: opens with the|:) (\w+)", re.ASCII)

    def rules(self, max_turns: int) -> str:
        """System text."""
        tries = "1 try" if max_turns == 1 else f"{max_turns} tries"
        return (
            f"A house has {self.num_doors} doors, 1 to {self.num_doors}, and four keys: {', '.join(KEYS)}. Each door opens with "
            "one of the keys; which one is hidden and stays the same in related tasks, so what you find out may pay later.\n\n"
            f"You are asked to open one door and have {tries}: a reward if it opens, 0 if not.\n\n"
            "Answer with brief reasoning, then exactly one action in this form:\n<answer>Key COLOUR</answer>"
        )

    def observation(self, door: int, tried: Sequence[str], max_turns: int) -> str:
        """What is seen before a try."""
        last = f" The {tried[-1]} key does not open it." if tried else ""
        return f"Try {len(tried) + 1} of {max_turns}.{last}\nThe door to open is number {door}. Which key do you try?"

    def feedback(
        self, outcome: str, door: int, tried: Sequence[str], opens: str, glimpsed: Facts, complaint: str
    ) -> str:
        """Words after the task; outcome is win, miss or malformed. Other doors that were seen open are named with their keys."""
        others = "".join(f" Door {number} opens with the {key} key." for number, key in glimpsed.items())
        if outcome == "malformed":
            names = ", ".join(KEYS)
            return (
                f"Your answer could not be read: {complaint}. Expected one <answer>Key COLOUR</answer> with a colour of {names}. "
                "The task is over."
            )
        if outcome == "win":
            return f"Door {door} opens with the {opens} key. Well done.{others}"
        return f"The {tried[-1]} key does not open it, and you have no tries left.{others}"

    def __init__(self, num_doors: int) -> None:
        super().__init__(num_doors)
        self.offer = (
            f"Now choose yourself which door, 1 to {self.num_doors}, you will be asked to open next: one to learn from. Answer "
            "with brief reasoning, then exactly one choice in this form:\n<answer>Door NUMBER</answer>"
        )

    def propose(self, door: int) -> str:
        """A well-formed proposal."""
        return f"I choose door {door}. <answer>Door {door}</answer>"

    def door_of(self, response: str) -> int:
        """The door that is proposed; 0 where there is none such."""
        return code_of(response, "Door", self.num_doors)[0]

    def respond(self, door: int, key: str) -> str:
        """A well-formed response."""
        return f"I want to open door {door}. <answer>Key {key}</answer>"

    def seen(self, observation: str) -> tuple[int, tuple[str, ...]]:
        """The door and the keys that did not open it, read back from an observation."""
        door = re.search(r"door to open is number (\d+)", observation)
        return int(door[1]) if door else 1, tuple(re.findall(r"The (\w+) key does not open it", observation))

    def write(self, facts: Facts) -> str:
        """A context that holds these facts."""
        return "\n".join(f"- Door {door}: {facts[door]}" for door in sorted(facts)) or "- Nothing is known yet."


DoorWording = NaturalDoors | CompactDoors
"""How doors are put into words."""
