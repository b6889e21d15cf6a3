"""Tasks that a mechanism of records has seen, made by hand."""

from tests.records import episode, turn


def solved(*observations, reward=1.0, feedback="done"):
    turns = tuple(turn("act", observation=one) for one in observations)
    return episode(turns=turns, reward=reward, success=reward > 0, feedback=feedback)


def lived(context, *tasks, state=None):
    """The state after tasks of (first observation, reward), each begun with what the one before left."""
    state = context.empty() if state is None else state
    for observation, reward in tasks:
        state = context.prepare(state, "rules", observation).state
        state = context.feedback(state, solved(observation, reward=reward, feedback=f"end of {observation}"))
    return state


def shown(context, state, observation):
    return context.prepare(state, "RULES", observation).system
