"""What a suite's numbers mean, in sentences that claim no more than the intervals do."""

from cod_lightning.evaluation.controls import REFERENCES
from cod_lightning.evaluation.schema import Figure, Figures, SuiteRecord, WarmStartDifference
from cod_lightning.evaluation.view import figure, with_interval

CAVEAT = (
    "Intervals are 95 %, over hidden rules with their packs (over packs where all hide one rule), each by itself; they do not "
    "cover other training seeds."
)


def sentences(record: SuiteRecord) -> list[str]:
    """The findings of one suite: what training adds, gain, blanked context, transfer, regret, recovery, warm start; those that were
    measured."""
    paired = record["paired"]
    found = [*_training_adds(record), _gain(record)]
    if (deviation := paired["blanked_max_deviation"]) is not None:
        gain, ci95, start = record["cod_gain"], paired["gain_ci95"], record["positions"][0]
        highest = max(record["controls"]["blanked_context"], key=lambda one: one["success"] or 0.0)
        rise = (highest["success"] or 0.0) - (start["success"] or 0.0)
        apart = (highest["success_ci95"] or [0.0])[0] > (start["success_ci95"] or [1.0])[-1]
        helped = gain is not None and ci95 is not None and _sign(ci95) == 1 and rise > gain / 2 and apart
        where = f"is up to {rise:.3f} above" if helped else f"stays within {deviation:.3f} of"
        beside = ", more than half of the gain: something other than the context helps, too" if helped else ""
        found.append(f"With a blanked context success {where} the trained policy's at position 0{beside}.")
    if (figures := record.get("figures")) is not None:
        found += _figures(figures)
    players = [one["n"] for player in REFERENCES for one in record["controls"].get(player.name, ())]
    if players and max(players) < record["packs"]:
        found.append(f"References were played on {max(players):,} of the packs.")
    if paired["trained_minus_best_warm_start"] is not None:
        found += _warm_start(paired["trained_minus_best_warm_start"])
    return found


def _figures(figures: Figures) -> list[str]:
    """What is solved, what contexts are worth, how far the oracle is, what a change of the rule costs."""
    found: list[str] = []
    if (whole := figures.get("whole_packs")) is not None:
        tasks, packs = figure(figures["area"]["trained"]["success"]), figure(whole["trained"])
        found.append(f"Tasks solved: {tasks}; packs with every task solved: {packs} (AppWorld's TGC and SGC).")
    if pass_at := figures.get("pass_at"):
        each = ", ".join(f"pass@{k} {figure(one)}" for k, one in pass_at.items())
        found.append(f"Of {max(map(int, pass_at))} attempts at each task, mean over positions: {each}.")
    transfer, said = figures["forward_transfer"], figures.get("training_adds") is not None
    if transfer is not None and not (said and transfer["control"] == "blanked_context"):
        against = transfer["control"].replace("_", " ")
        found.append(f"Forward transfer (success from position 1 on, minus {against}): {_figure(transfer['success'])}.")
    if (shuffled := figures["differences"].get("shuffled_context")) is not None:
        found.append(f"Its own contexts against another pack's, mean over positions: {_figure(shuffled['success'])}.")
    if (regret := figures["regret"]) is not None:
        by_position = regret["by_position"]
        first, last = _figure(by_position[0]), _figure(by_position[-1])
        found.append(f"Regret to the oracle in reward: {first} at position 0, {last} at the last.")
    if (recovery := figures["recovery"]) is not None:
        drop, regained = _figure(recovery["drop"]), _figure(recovery["regained"])
        found.append(f"The change of the rule moves success by {drop}; from there to the pack's end by {regained}.")
    return found


def _figure(of: Figure) -> str:
    return figure(of, "+.3f")


def _gain(record: SuiteRecord) -> str:
    last, gain, ci95 = record["pack_size"] - 1, record["cod_gain"], record["paired"]["gain_ci95"]
    if gain is None or ci95 is None:
        return "No gain from position 0 to the last could be measured."
    memoryless = (record.get("figures") or {}).get("differences", {}).get("memoryless")
    above, who = None if memoryless is None else memoryless["success"], record.get("policy", "the trained policy")
    if above is not None and (bounds := above["ci95"]) is not None and _sign(bounds) < 1:
        is_not = "is below" if _sign(bounds) else "was not shown to be above"
        return (
            f"Success of {who} {is_not} that of memoryless, mean over positions: {_figure(above)}; "
            f"from position 0 to {last} it changes by {with_interval(gain, ci95, '+.3f')}."
        )
    change = {1: "rises", 0: "does not measurably change", -1: "falls"}[_sign(ci95)]
    return f"Success of {who} {change} from position 0 to {last}: {with_interval(gain, ci95, '+.3f')}."


def _training_adds(record: SuiteRecord) -> list[str]:
    """The transfer of the trained policy against that of the warm start at its best temperature."""
    adds = (record.get("figures") or {}).get("training_adds")
    if not adds or (bounds := adds["difference"]["ci95"]) is None:
        return []
    sign, rules = _sign(bounds), record.get("rules", record["packs"])
    verdict = {1: "Training adds transfer", 0: "Training was not shown to add transfer", -1: "Training loses transfer"}
    figures = f"{_figure(adds['trained'])}, warm start at T={adds['temperature']:g} {_figure(adds['warm_start'])}"
    said = f"{verdict[sign]} (success from position 1 on, minus blanked context): {_figure(adds['difference'])}; trained {figures}."
    if sign == 0 and 4 * rules < record["packs"]:
        said += f" The interval is over {rules} hidden rules, to which more packs add none."
    return [said]


def _warm_start(difference: WarmStartDifference) -> list[str]:
    temperature, mean, ci95 = difference["best_temperature"], difference["mean_difference"], difference["ci95"]
    if mean is None or ci95 is None:
        return ["The trained policy and the warm start could not be compared."]
    others = [f"{one:g}" for one in difference.get("temperatures", []) if one != temperature]
    best = f"its best temperature (T={temperature:g}, marked *{'; also tried: ' + ', '.join(others) if others else ''})"
    verdict = {
        1: f"The trained policy solves more than the warm start does at {best}.",
        0: f"No difference from the warm start at {best} was shown.",
        -1: f"The trained policy solves less than the warm start does at {best}.",
    }[_sign(ci95)]
    return [
        f"Trained minus best warm start, same packs, mean over positions: {with_interval(mean, ci95, '+.3f')}.",
        verdict,
    ]


def _sign(ci95: list[float]) -> int:
    """1 or -1 where the whole interval lies on that side of 0, else 0."""
    low, high = ci95
    return int(low > 0) - int(high < 0)
