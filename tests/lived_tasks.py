"""Tasks that a mechanism of records has seen, made by hand."""

from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, StopReason, Turn


def turn(observation, response="act"):
    return Turn(
        new_ids=(1,), extends=False, action_ids=(2,), behaviour_logprobs=(0.0,), stop=StopReason.STOP, policy_version=0,
        prompt_digest=0, observation=observation, response=response,
    )  # fmt: skip


def solved(*observations, reward=1.0, feedback="done"):
    return Episode(
        kind=EpisodeKind.SOLVE, position=0, status=EpisodeStatus.COMPLETED, turns=tuple(map(turn, observations)),
        reward=reward, success=reward > 0, feedback=feedback,
    )  # fmt: skip


def lived(context, *tasks, state=None):
    """The state after tasks of (first observation, reward), each begun with what the one before left."""
    state = context.empty() if state is None else state
    for observation, reward in tasks:
        state = context.prepare(state, "rules", observation).state
        state = context.feedback(state, solved(observation, reward=reward, feedback=f"end of {observation}"))
    return state


def shown(context, state, observation):
    return context.prepare(state, "RULES", observation).system
