"""A house that understands one word for each verb of TextWorld's, which its commands and observations do not tell."""

import random
import re

from cod_lightning.envs.textworld.houses import HouseSpec
from cod_lightning.envs.textworld.wording import HouseView, NaturalHouse
from cod_lightning.seeds import derive_seed

SYNONYMS = {
    "go": ("go", "walk", "head"),
    "open": ("open", "unfasten", "pull"),
    "take": ("take", "get", "grab"),
    "unlock": ("unlock", "undo", "unbolt"),
}
"""By TextWorld's verb; a word belongs to one verb."""
_LISTS = {"go": "Ways", "open": "Closed", "take": "Things", "unlock": "Locked"}
_UNKNOWN = "This house does not know that word: "


class SynonymHouse(NaturalHouse):
    """TextWorld's own text, with the house's word in place of TextWorld's verb, and what can be acted on.

    Args:
        spec: A house as all others are; only the verbs that such a house needs have synonyms.
    """

    step = ""
    heading = "Seen, from where you begin, and words that this house understood:"

    def __init__(self, spec: HouseSpec) -> None:
        needed = {"go", "take", *(["open"] if spec.doors != "none" or spec.num_holders else [])}
        needed |= {"unlock"} if spec.doors == "locked" else set()
        self.synonyms = {verb: words for verb, words in SYNONYMS.items() if verb in needed}
        choices = "; ".join(f"{', '.join(words[:-1])} or {words[-1]}" for words in self.synonyms.values())
        self.listed = (
            f"This house understands one word of each of these, and which is hidden: {choices}. What you can act on is listed; a "
            "word and what is listed make a command, as `walk north` or `grab apple from table` would. A word that this house "
            "does not know counts as a command"
        )

    def words_of(self, spec: HouseSpec) -> dict[str, str]:
        rng = random.Random(derive_seed("textworld words", spec.map_seed, spec.things_seed))
        drawn = {verb: rng.choice(words) for verb, words in SYNONYMS.items()}
        return {verb: drawn[verb] for verb in self.synonyms}

    def observation(self, view: HouseView) -> str:
        said = f"{_UNKNOWN}{view.unknown}." if view.unknown else "The game knows no such command here."
        if view.understood:  # as in "You open the box."
            said = re.sub(r"\AYou (\w+)", lambda match: f"You {view.seen.get(match[1], match[1])}", view.text)
        lists = [f"{name}: {'; '.join(found)}." for verb, name in _LISTS.items() if (found := _acted_on(view, verb))]
        return "\n".join([said, "", f"Command {view.turn + 1} of {view.max_turns}. Take the {view.wanted}.", *lists])

    def commands(self, observation: str) -> list[str]:
        lists = observation.rpartition(" Take the ")[2]
        return [
            f"{verb} {what}"
            for verb, name in _LISTS.items()
            for found in re.findall(rf"^{name}: (.+)\.$", lists, flags=re.MULTILINE)
            for what in found.split("; ")
        ]

    def refused(self, observation: str) -> bool:
        return observation.startswith(_UNKNOWN)

    def places(self, text: str) -> dict[str, str]:
        found = super().places(text)
        for verb, word in re.findall(r"^- word for (\w+): (\w+)$", text, flags=re.MULTILINE):
            if word in self.synonyms.get(verb, ()):
                found[verb] = word
        return found

    def _line(self, key: str, value: str) -> str:
        return f"- word for {key}: {value}" if key in self.synonyms else super()._line(key, value)


def _acted_on(view: HouseView, verb: str) -> list[str]:
    """What the verb's commands are about."""
    return [rest for first, _, rest in (one.partition(" ") for one in view.commands) if first == verb]
