"""Lists of tasks: which split one belongs to does not depend on their order."""

import random

from cod_lightning.envs.grouped import GroupedTasks
from cod_lightning.types import Split
from tests.cases import each


@each("grouped", [True, False])
def test_the_order_of_the_list_changes_no_draw_and_each_split_has_tasks_of_its_own(grouped):
    rows = [(str(n) if grouped else None, {"n": n}) for n in range(30)]
    one, other = GroupedTasks(rows), GroupedTasks(rows[::-1])
    seen = []
    for split in Split:
        draws = [one.draw(random.Random(index), split, 5) for index in range(300)]
        assert draws == [other.draw(random.Random(index), split, 5) for index in range(300)]
        seen.append({text for draw in draws for text in draw})
    assert sum(map(len, seen)) == len(set.union(*seen)) == 30
