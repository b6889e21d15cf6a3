"""Preference between siblings of one pack and position."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import logsigmoid, pad

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.objective.losses.base import LossInputs, LossOutputs, PolicyLoss, log_ratio, units_of
from cod_lightning.ranges import Positive


@dataclass(frozen=True, kw_only=True)
class SDPO(PolicyLoss):
    """L = 1/num_episodes sum_s n_s mean_{(w, l) in s} - log sigmoid(beta (h_w - h_l)), s a pack and place in the lifecycle.

    Pairs are all siblings w of positive and l of negative advantage, rounding noise (`NO_ADVANTAGE`) left out; n_s is the number
    of siblings in pairs. Attempts from a snapshot are compared with each other and with the solve episode beside them, which
    had their context. h is the sum of policy - behaviour (nats) over the tokens of an episode's first turns, as many as the shorter
    of the two has: segments of equal length, so that the partition function cancels.

    Source: SDPO (arXiv 2501.01821), segment-level DPO in dialogues. What differs: the reference is the policy that sampled, so each
    rollout prefers anew from where training is; a segment begins with the episode, where siblings part, and not at a turn that
    a stronger model judges to be wrong; siblings were sampled alike, and not again from there; all pairs count, not the best
    and one other.
    """

    compares_siblings: ClassVar[bool] = True
    beta: Positive = 0.1
    """Scale of the gap in log-probs; larger is satisfied by a smaller gap."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        assert inputs.siblings is not None, "siblings that are not known"
        mask = inputs.action_mask
        turns, episodes = units_of("turn", inputs), units_of("episode", inputs)
        row_of_turn = (mask & ~pad(mask[:, :-1], (1, 0))).nonzero()[:, 0]
        episode = episodes.index[:, 0][row_of_turn]
        number = (episode[:, None] == torch.arange(episodes.num, device=episode.device)).cumsum(0)
        place = number.gather(1, episode[:, None]).squeeze(1) - 1
        """Of each turn in its episode."""
        num_turns = torch.bincount(episode, minlength=episodes.num)
        sums = inputs.policy_logprobs.new_zeros(episodes.num, int(num_turns.max()) if len(episode) else 1)
        upto = sums.index_put((episode, place), turns.sum(log_ratio(inputs))).cumsum(dim=1)
        advantage = episodes.means(inputs.advantages)
        siblings = torch.zeros(episodes.num, dtype=torch.long, device=episode.device)
        siblings[episodes.index[:, 0]] = inputs.siblings
        same = siblings[:, None] == siblings
        pairs = same & (advantage[:, None] > NO_ADVANTAGE) & (advantage < -NO_ADVANTAGE)
        better, worse = pairs.nonzero().unbind(dim=1)
        last = torch.minimum(num_turns[better], num_turns[worse]) - 1
        gap = upto[better, last] - upto[worse, last]
        of_each = (pairs | pairs.T).sum(dim=1)
        num_pairs, num_compared = (same * of_each).sum(dim=1) // 2, (same & (of_each > 0)).sum(dim=1)
        share = num_compared[better].to(gap) / num_pairs[better].to(gap)
        loss = -(share * logsigmoid(self.beta * gap)).sum() / max(1, inputs.num_episodes)
        return LossOutputs(loss=loss)
