"""A world that a tiny policy learns from nothing on a CPU: a vending machine whose buttons have lost their labels."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.facts import FactTable, QuotingDials
from cod_lightning.envs.players import TablePlay
from cod_lightning.envs.task_world import TaskPlayers, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Message, Pack, Split

DRINKS = ("tea", "milk", "cola", "soup", "juice")
BUTTONS = ("1", "2", "3", "4", "5")


@dataclass(frozen=True)
class Order:
    """A task: the drink that is wanted, and what the buttons give, which is hidden and the same in the whole pack."""

    drink: str
    gives: tuple[str, ...]


class Wording:
    """What is shown, in words of a closed vocabulary: `want=tea`, then `2=milk`, at the end `win 2=milk 1=tea`."""

    facts = FactTable("Button", DRINKS, compact=True, names=BUTTONS)

    def respond(self, drink: str, button: int) -> str:
        """An answer, as players of the world give it."""
        return f"{drink} <answer>Button_{button}</answer>"

    def words(self) -> tuple[str, ...]:
        """All that can be shown or answered."""
        answers = (f"<answer>Button_{button}</answer>" for button in BUTTONS)
        wanted = (f"want={drink}" for drink in DRINKS)
        return ("machine", *wanted, *self.facts.words(), *answers, *DRINKS, "win", "miss", "malformed")


class MachinePlay(TablePlay):
    """Presses the button that is known to give the drink, else one that is not known."""

    def answer(self, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
        drink = messages[1].content.removeprefix("want=")
        buttons = [b for b in known if known[b] == drink] or [b for b in self.table.codes if b not in known]
        button = rng.choice(buttons or list(self.table.codes))
        return self.respond(drink, button, known)


class MachinePlayers(TaskPlayers["VendingMachine"]):
    """Who plays the machine."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[MachinePlay, dict[int, str]]:
        gives = self.env._spec(pack.tasks[0]).gives
        return MachinePlay(self.env.wording, self.env.teacher), dict(enumerate(gives, start=1))


class VendingMachine(TaskWorld[Order]):
    """Get the wanted drink.

    Args:
        max_turns: Presses per task.
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (MachinePlayers, *TaskWorld.companions)

    task_type = Order
    late = "miss"

    def __init__(self, max_turns: int = 2, teacher: QuotingDials = QuotingDials()) -> None:  # noqa: B008  (frozen)
        self.max_turns, self.teacher = max_turns, teacher
        self.name, self.wording = "vending_machine", Wording()

    @property
    def rules(self) -> str:
        """The system text; a language model needs more of it."""
        return "machine"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """What the buttons give belongs to one split; every task wants any drink. Of few orders a split might have none: 120 are
        many enough, or the loop would not end."""
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        while split_of_text(" ".join(gives := tuple(rng.sample(DRINKS, len(DRINKS))))) is not split:
            pass
        orders = [Order(rng.choice(DRINKS), gives) for _ in range(num_tasks)]
        return self._pack(split, index, seed, derive_seed(self.name, *gives), orders)

    def _start(self, task: Order) -> None:
        self.task, self.turns, self.pressed, self.seen = task, 0, {}, f"want={task.drink}"

    def _observed(self) -> str:
        return self.seen

    def _acted(self, action: str) -> str:
        """Press a button; how the task ended, empty while it goes on."""
        button, complaint = code_of(action, "Button", len(BUTTONS))
        if complaint:
            return "malformed"
        drink = self.pressed[button] = self.task.gives[button - 1]
        self.turns, self.seen = self.turns + 1, f"{button}={drink}"
        if drink == self.task.drink:
            return "win"
        return "miss" if self.turns == self.max_turns else ""

    def _feedback(self) -> str:
        facts = (f"{button}={drink}" for button, drink in self.pressed.items())
        return " ".join([self._outcome, *facts])
