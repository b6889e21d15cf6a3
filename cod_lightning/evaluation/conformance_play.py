"""What a world breaks of its contract when references play whole lifecycles of it. See `conformance.py`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from statistics import fmean

from cod_lightning.contexts.base import ContextMechanism, Words
from cod_lightning.envs.base import Proposals, TextEnv, Variants, Vocabulary, beside
from cod_lightning.evaluation.conformance_turns import first_task
from cod_lightning.evaluation.controls import REFERENCES, ByReference
from cod_lightning.evaluation.references import ReferenceRow, play_reference, summarise
from cod_lightning.evaluation.verdicts import MOST_EXAMPLES, Broken, Verdict, verdict_on
from cod_lightning.types import EpisodeKind, EpisodeStatus, Lifecycle, Pack

_LEAST_GAIN = 0.05
_SIBLINGS, _MOST_ALIKE = 8, 0.9
"""Of a usual group, and the share of groups of equal rewards from which training hardly finds a signal."""
_LEAST_PACKS = 20
"""With fewer, a player without knowledge may solve all first tasks by luck."""


def verdicts_on_play(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Iterator[Verdict]:
    """Lifecycles by the loop of the training: random, scripted without its context, scripted, oracle."""
    rows: dict[str, ReferenceRow] = {}
    lives: dict[str, list[Lifecycle]] = {}
    lacking: list[Verdict] = []
    for control in REFERENCES:
        who = control.name
        verdict = verdict_on(f"{who} play is legal", partial(_play, control, world, packs, mechanism, lives))
        if who in lives:
            row = rows[who] = summarise(lives[who])
            found = "success by position " + " ".join(f"{one.mean:.2f}" for one in row.success)
            yield replace(verdict, remark=found)
        elif verdict.broken:
            yield verdict
        else:
            lacking.append(Verdict(f"{who} play", remark="the world has no such reference"))
    if beside(world, Vocabulary).words():
        unknown = tuple(islice(_unknown(lives, world, mechanism, packs), MOST_EXAMPLES))
        yield Verdict("words() lists every word that is shown, answered or noted", unknown)
    if not rows:
        remark = "the world has none, so nothing here has solved a task: do so once with `play`, and look at success and reward"
        yield Verdict("play by references", remark=remark, look=True)
        return
    yield from lacking
    leaks = list(_spelled_notes(world, packs, lives.get("oracle", [])))
    oracle = rows.get("oracle")
    if oracle and max(one.mean for row in rows.values() for one in row.success) == 0:
        best = max(one.mean for row in rows.values() for one in row.reward)
        paid = f", though rewards reach {best:.2f} in the mean" if best > 0 else ""
        whose = "no task of any player counts as a success, the oracle's included"
        found = f"{whose}{paid}: are `success` and, in a TaskWorld, `wins` right?"
        yield Verdict("the oracle solves tasks", (found,))
    else:
        yield from _gained(world, rows, len(packs), leaks)
    if oracle:
        yield Verdict("without a context an agent cannot know what is hidden", tuple(leaks))
    yield from _paid(rows)
    if "random" in lives:
        yield _signal(lives["random"])


def _play(
    control: ByReference,
    world: TextEnv,
    packs: Sequence[Pack],
    mechanism: ContextMechanism,
    lives: dict[str, list[Lifecycle]],
) -> Broken:
    """Adds the reference's lifecycles, if the world has it, and names what was illegal in them."""
    if not control.served(world, packs[0]):
        return
    played = lives[control.name] = list(
        play_reference(world, packs, control.reference, mechanism, blanked=control.blanked)
    )
    failed = {e.error: (life, e) for life in reversed(played) for e in life.own if e.error}
    yield from (f"{life.pack_id}, task {e.position}: {error[:200]}" for error, (life, e) in failed.items())
    unread = [e for life in played for e in life.solves if e.status is EpisodeStatus.MALFORMED]
    for turn in [e.turns[-1] for e in unread[:1] if e.turns]:
        found = f"{turn.response!r:.80} to {turn.observation!r:.80}"
        yield f"{len(unread)} answers were malformed, the first {found}"


def _paid(rows: Mapping[str, ReferenceRow]) -> Iterator[Verdict]:
    """Whether who solves more also earns more, since training sees rewards alone."""
    means = [tuple(fmean(one.mean for one in of) for of in (row.success, row.reward)) for row in rows.values()]
    (least, other), (most, earned) = (by(means, key=itemgetter(0)) for by in (min, max))
    if most - least >= _LEAST_GAIN and earned <= other:
        solved = f"solve {most:.2f} of the tasks and earn {earned:g} each, who solve {least:.2f} earn {other:g}"
        remark = f"players who {solved}: training sees no success, only rewards. What does `step` return, or `_reward`?"
        yield Verdict("who solves more earns more", remark=remark, look=True)


def _signal(lives: Sequence[Lifecycle]) -> Verdict:
    """Whether a policy that knows nothing earns different rewards, by whose differences it learns."""
    counts = Counter(one.reward for life in lives for one in life.solves if one.reward is not None)
    (reward, most), *_ = [*counts.most_common(1), (0.0, 0)]
    share = most / max(1, counts.total())
    rare = share**_SIBLINGS > _MOST_ALIKE
    why = f": {_SIBLINGS} siblings mostly earn alike, which teaches nothing. Begin with a warm start, or pay for parts of a task"
    remark = f"{share:.0%} of the tasks that random play tries pay {reward:g}{why if rare else ''}"
    return Verdict("an untrained policy earns different rewards", remark=remark, look=rare)


def _gained(world: TextEnv, rows: Mapping[str, ReferenceRow], num_packs: int, leaks: list[str]) -> Iterator[Verdict]:
    """Who gets better, and who should; adds to `leaks` where the first task needs no knowledge."""
    least = _LEAST_GAIN * (world.traits.reward_range[1] - world.traits.reward_range[0])
    scripted, oracle, memoryless = map(rows.get, ("scripted", "oracle", "memoryless"))
    for before, at, what in ((scripted, 0, "in the first"), (memoryless, -1, "memoryless play")):
        if scripted and before and not _gains(before, at, scripted, -1, least):
            remark = f"scripted play is no better in the last task than {what}: is there anything that a context could carry?"
            yield Verdict("later tasks profit from earlier ones", remark=remark, look=True)
            break
    if num_packs < _LEAST_PACKS or not memoryless:
        return
    first, last = memoryless.success[0], memoryless.success[-1]
    rises = last.low > first.high and last.mean - first.mean >= 2 * _LEAST_GAIN
    if rises and beside(world, Variants).without_world_memory() is world:
        rise = f"memoryless play rises from {first.mean:.2f} to {last.mean:.2f}"
        remark = f"{rise}: something other than the context helps it"
        yield Verdict("without a context later tasks are no easier", remark=remark, look=True)
    if oracle and not _gains(memoryless, 0, oracle, 0, least / 10):
        leaks.append("the first task is solved as by the oracle: do rules or observations say what is hidden?")


def _gains(before: ReferenceRow, at: int, after: ReferenceRow, then: int, least: float) -> bool:
    """Whether success is higher at a position of one than at another's, or reward by at least so much."""
    more = after.success[then].mean - before.success[at].mean
    return more >= _LEAST_GAIN or after.reward[then].mean - before.reward[at].mean >= least


def _unknown(
    lives: Mapping[str, Sequence[Lifecycle]], world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]
) -> Iterator[str]:
    """Words outside a closed vocabulary, each once; a trained policy would read `<unk>`."""
    known = {*beside(world, Vocabulary).words(), *beside(mechanism, Words).words()}

    def unlisted(who: str, text: str) -> Iterator[str]:
        for word in dict.fromkeys(text.split()):
            if word not in known:
                known.add(word)
                yield f"{who} {word!r:.60}, which words() does not list"

    for pack in packs:
        with first_task(world, pack) as (own, shown):
            rules, offer = own.rules, beside(own, Proposals).offer
        yield from unlisted("rules shows", rules)
        yield from unlisted("reset shows", shown)
        yield from unlisted("offer shows", offer)
        system = mechanism.prepare(mechanism.empty(), rules, shown).system
        yield from unlisted(f"{type(mechanism).__name__}.prepare shows", system)
    for player, of_player in lives.items():
        for episode in (episode for life in of_player for episode in life.own):
            solving = episode.kind is EpisodeKind.SOLVE
            noted = set(episode.context_before.split())
            texts = [(f"{player} play {'answers' if solving else 'notes'}", one.response) for one in episode.turns]
            shows = "the world shows" if solving else f"{type(mechanism).__name__} shows"
            texts += [(shows, " ".join(set(one.observation.split()) - noted)) for one in episode.turns]
            texts += [(shows, episode.feedback)] if solving else []
            for who, text in texts:
                yield from unlisted(who, text)


def _spelled_notes(world: TextEnv, packs: Sequence[Pack], lives: Sequence[Lifecycle]) -> Iterator[str]:
    """Where a first task shows before any answer what the oracle notes, and packs of other notes, which rules may list, do not."""
    found: list[tuple[str, str, str, str]] = []
    for pack, life in zip(packs, lives, strict=False):
        note = next((one.context_after for one in life.updates if one.context_after), "")
        with first_task(world, pack) as (own, shown):
            found += [("rules", pack.id, note, own.rules), ("reset", pack.id, note, shown)]
    for method, name, note, text in found:
        if note and note in text and not any(note in of for by, _, its, of in found if by == method and its != note):
            yield f"{method} of pack {name} shows {note!r:.60}, which is what the oracle notes"
            return
