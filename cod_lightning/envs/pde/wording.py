"""Two renderings of PDE Discovery: sentences for language models, fused words for tiny policies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cod_lightning.envs.pde.desk import MERGED, MOST_CANDIDATES, MOST_UNCERTAIN, Dataset, Desk
from cod_lightning.envs.pde.library import TERMS, support, written
from cod_lightning.envs.pde.numerics import LIMIT
from cod_lightning.envs.pde.parameters import PDEParameters
from cod_lightning.envs.pde.regression import SATURATED, Fit, Reading, Regression
from cod_lightning.envs.pde.verdicts import CANDIDATES, PROBES

_MOST_ROWS = 24
_HELP = {
    "sample_pde_data": "Measure at points of your choice, at most as many as are left in the task:\n"
    '<answer><sample_pde_data><point x="0.50" t="0.01"/><point x="0.30" t="0.05"/></sample_pde_data></answer>',
    "run_sparse_regression": "Fit every set of up to {max_terms} of the terms that you name (separated by semicolons, or the "
    f"word all) to a dataset ({MERGED}, the default, is everything stored):\n"
    f"<answer><run_sparse_regression><dataset_id>{MERGED}</dataset_id><dictionary>u; u**4; tanh(u)</dictionary>"
    "</run_sparse_regression></answer>\n"
    f"Or score up to {MOST_CANDIDATES} equations of your own, both as given and with fitted numbers:\n"
    "<answer><run_sparse_regression><candidate_equations>f(u) = 1.1*tanh(u) + 0.9*u**4; f(u) = -1.2*u**4"
    "</candidate_equations></run_sparse_regression></answer>\n"
    "An optional element threshold (0.05) sets below which size fitted coefficients are dropped.",
    "summarize_pack_evidence": "List what was finalised so far in this pack; with true the equations are shown:\n"
    "<answer><summarize_pack_evidence><reveal_equations>true</reveal_equations></summarize_pack_evidence></answer>",
    "update_scientific_context": "Finalise, which ends the task; only after sampling and a regression in this task, and with an "
    f"equation which the last regression scored. note and uncertain_terms (up to {MOST_UNCERTAIN}) are optional:\n"
    "<answer><update_scientific_context><preferred_equation>f(u) = 1.1*tanh(u) + 0.9*u**4</preferred_equation>"
    "<note>short</note><uncertain_terms>u**4</uncertain_terms></update_scientific_context></answer>",
}


@dataclass(frozen=True)
class NaturalPDE:
    """Full sentences. The numbers 3 and 1 in terms of names stay as the library has them."""

    parameters: PDEParameters

    def rules(self) -> str:
        """What there is, what is hidden, what can be done, how to answer."""
        p = self.parameters
        count = str(p.max_terms) if p.min_terms == p.max_terms else f"{p.min_terms} to {p.max_terms}"
        kept = (
            f"Data stay stored for later tasks of the pack: {MERGED} holds them all."
            if p.world_memory
            else "Data are dropped after every task; only what you note yourself is carried on."
        )
        shown = (
            "The measured values are listed at once." if p.show_samples else "The values are listed by a regression."
        )
        helps = "\n\n".join(f"{name}: {_HELP[name].format(max_terms=p.max_terms)}" for name in _HELP)
        return (
            "A quantity u(x, t) on 0 < x < 1, 0 <= t <= 1 obeys u_t = u_xx + f(u) and is zero at both ends. The reaction f is "
            f"hidden. It is a sum of {count} terms of the library below, each times a number whose size lies between 0.5 and 2 and "
            "whose sign may be plus or minus. All tasks of a pack have the same f; each starts from another unknown profile "
            "u(x, 0) >= 0, which fades with time.\n\n"
            f"Library: {'; '.join(TERMS)}\n(exp(u)-1 is one term, as is every quotient.)\n\n"
            f"You have {p.max_turns} steps and {p.point_budget} points per task. A measurement gives u (noise about "
            f"{p.noise_level:g}) and y = u_t - u_xx, which is f(u) (noise about {p.noise_level / 4:g}). f is cut to +-{LIMIT:g}: "
            f"points with |y| >= {SATURATED:g} say only that, and are left out of fits. {shown} {kept}\n\n"
            f"Actions:\n{helps}\n\n"
            "A regression ranks equations by the largest absolute error over its points, so more terms always look a little "
            "better. Its condition number tells how well the terms of the best equation can be told apart; above "
            f"{p.kappa_threshold:g} they hardly can.\n\n"
            "The reward is 1/(1 + loss): the loss adds the errors of all coefficients, relative to the sum of the true sizes, and "
            "1 for every term too many. Without a finalised equation it is 0.\n\n"
            "Answer with brief reasoning, then exactly one action in one answer block, written as shown. What cannot be read ends "
            "the task with 0; a wrong value costs a step."
        )

    def observation(self, turn: int, desk: Desk, result: str) -> str:
        """Where the task stands, and what the last action gave."""
        stored = "none" if not desk.datasets else desk.datasets[-1].name
        if len(desk.datasets) > 1:
            first, last = desk.datasets[0].name, desk.datasets[-1].name
            stored = f"{first} to {last}; {MERGED} holds their {len(desk.merged)} points"
        earlier = ""
        if turn == 0 and desk.before:
            u = [reading.u for reading in desk.merged]
            last = ""
            if desk.hypotheses:
                last = f"; the equation finalised last has largest error {desk.hypotheses[-1].error:.4f}"
            earlier = f"\nFrom earlier tasks: {len(u)} points, u from {min(u):.3f} to {max(u):.3f}{last}."
        if not desk.sampled:
            following = "sample, then fit"
        elif desk.last is None:
            following = "fit" + (", or sample more" if desk.budget else "")
        else:
            following = "finalise, or go on" if desk.budget else "finalise, or fit again"
        shown = f"\n\n{result}\n" if result else ""
        return (
            f"Step {turn + 1} of {self.parameters.max_turns}. Points left: {desk.budget}. Stored datasets: {stored}.{earlier}"
            f"{shown}\n"
            f"Find f(u). Next: {following}."
        )

    def refused(self, complaint: str) -> str:
        """A wrong value."""
        return f"Error: {complaint}"

    def sampled(self, kept: Dataset) -> str:
        """A new dataset."""
        x, t = [r.x for r in kept.readings], [r.t for r in kept.readings]
        head = (
            f"Dataset {kept.name} has {len(kept.readings)} new points, x from {min(x):.3f} to {max(x):.3f}, t from {min(t):.3f} to "
            f"{max(t):.3f}."
        )
        return "\n".join([head, *map(row, kept.readings)]) if self.parameters.show_samples else head

    def fitted(self, found: Regression) -> str:
        """Best equation, others, and the points."""
        best = found.fits[0]
        out = f" ({found.left_out} cut points left out)" if found.left_out else ""
        most = self.parameters.kappa_threshold
        apart = f", above {most:g}: its terms can hardly be told apart" if found.condition > most else ""
        lines = [
            f"{len(found.fits)} equations were scored on {len(found.used)} points{out}.",
            f"Best: {scored(best)}. Condition number {found.condition:.3g}{apart}.",
        ]
        others = [fit for fit in found.fits if support(fit.equation) != support(best.equation)]
        if others:
            lines.append(f"Runner-up with other terms: {scored(others[0])}.")
        for size in range(1, self.parameters.max_terms + 1):
            same = [fit for fit in found.fits if len(fit.equation) == size]
            if same and same[0] not in (best, *others[:1]):
                lines.append(f"Best with {_terms(size)}: {scored(same[0])}.")
        latest = f" (the latest {_MOST_ROWS})" if len(found.used) > _MOST_ROWS else ""
        lines.append(f"Points{latest}, with the best equation's value:")
        for reading in found.used[-_MOST_ROWS:]:
            value = best.predicted(reading.u)
            lines.append(f"{row(reading)} predicted={value:.4f} error={value - reading.y:.4f}")
        return "\n".join(lines)

    def summary(self, desk: Desk, reveal: bool) -> str:
        """Earlier hypotheses."""
        if not desk.hypotheses:
            return "No equation of an earlier task is stored."
        lines = [
            f"- {scored(fit) if reveal else f'an equation of {_terms(len(fit.equation))}, largest error {fit.error:.4f}'}"
            for fit in desk.hypotheses[-8:]
        ]
        return "\n".join([f"Finalised so far: {len(desk.hypotheses)}.", *lines])

    def feedback(self, outcome: str, desk: Desk, final: Fit | None, complaint: str) -> str:
        """Words after the task; the reward and the truth stay hidden."""
        if outcome == "malformed":
            return (
                f"Your answer could not be read: {complaint}. Expected exactly one <answer> block with one action, for example "
                "<answer><summarize_pack_evidence/></answer>. The task is over."
            )
        last = f" The last regression's best was {scored(desk.last.fits[0])}." if desk.last else ""
        if final is None:
            return f"No equation was finalised within {self.parameters.max_turns} steps.{last}"
        error = f"its largest error over the points of the last regression is {final.error:.4f}"
        return f"You finalised {written(final.equation)}; {error}.{last}"


def _terms(count: int) -> str:
    return f"{count} term{'s' * (count > 1)}"


def row(reading: Reading) -> str:
    """One measurement.

    >>> row(Reading(0.5, 0.01, 1.23456, -0.5))
    'x=0.500 t=0.0100 u=1.2346 y=-0.5000'
    """
    return f"x={reading.x:.3f} t={reading.t:.4f} u={reading.u:.4f} y={reading.y:.4f}"


def scored(fit: Fit) -> str:
    """An equation with its error."""
    return f"{written(fit.equation)} (largest error {fit.error:.4f})"


class CompactPDE:
    """`amp=2`, then verdicts on some equations (`u-u2:no u-u3:ok`); answers are a probe, then an equation."""

    def rules(self) -> str:
        """One word."""
        return "pde"

    def start(self, level: int) -> str:
        """How strong the initial state is, 1 to 4."""
        return f"amp={level}"

    def verdicts(self, survives: Mapping[str, bool], order: Iterable[str]) -> str:
        """A word for every equation that was judged."""
        return " ".join(f"{word}:{'ok' if survives[word] else 'no'}" for word in order if word in survives)

    def feedback(self, outcome: str, verdicts: str) -> str:
        """The outcome, and the task's verdicts."""
        return f"{outcome} {verdicts}".strip()

    def words(self) -> tuple[str, ...]:
        """Every word shown or asked for."""
        shown = [f"{word}:{verdict}" for word in CANDIDATES for verdict in ("ok", "no", "?")]
        answers = [f"<answer>{word}</answer>" for word in (*PROBES, *(f"f={word}" for word in CANDIDATES))]
        levels = [f"amp={level}" for level in range(1, 5)]
        return (
            "pde",
            *levels,
            *shown,
            *answers,
            "done",
            "late",
            "malformed",
            "sample-first",
            "no-points",
            "no-equation",
        )
