"""The report in a real browser."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cod_lightning.diagnosis.evidence import PlacedEpisode, read_evidence
from cod_lightning.markdown import visible
from cod_lightning.rollout import transcript
from cod_lightning.types import EntryEvent, EntryEventKind, EpisodeKind
from tests.hostile_texts import ENCODABLE, RAW
from tests.records import group, turn
from tests.reports.conftest import Opened
from tests.reports.made_runs import saying, varied_groups, with_episodes, write_logprobs, write_run
from tests.speed import slowness

pytestmark = pytest.mark.slow
CHOSEN_ROW = "[...document.querySelectorAll('.row')].findIndex((row) => row.querySelector(':checked'))"
CHOSEN = ".episode:has(:checked)"
GROUPS = [group("a", [[True, False], [False, True]], context="left is up"), group("b", [[False, True], [True, None]])]


def _focused(page: Any) -> str:
    return page.evaluate("document.activeElement.name || document.activeElement.type")


def seconds_to_open(page: Any) -> float:
    """As on a machine of 3 GHz."""
    slow, begun = slowness(), time.perf_counter()
    page.reload()
    page.wait_for_selector(".row")
    return (time.perf_counter() - begun) / max(slow, slowness())


def test_two_thousand_lifecycles_open_in_under_three_seconds(opened: Opened, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", varied_groups(500, 4, words=12), group_size=4)
    page = opened(folder)
    assert (tmp_path / "report.html").stat().st_size < 4e6
    assert seconds_to_open(page) < 3
    assert "2,000 of 2,000" in page.locator("#count").inner_text()


def test_no_label_of_a_chart_is_cut_off(opened: Opened, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", GROUPS)
    path = folder / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    figures = (12345.67890, 12345.67905, 12345.67920)  # labels of some ten digits
    path.write_text(
        "\n".join([f"{head},train/gradient_norm", *(f"{row},{x}" for row, x in zip(rows, figures, strict=False))])
    )
    page = opened(folder)
    left = page.evaluate("Math.min(...[...document.querySelectorAll('.chart text')].map((one) => one.getBBox().x))")
    assert left >= 0


@pytest.mark.parametrize(
    "figures", [(0.50009, 0.50021, 0.50061), (20_010, 20_040, 20_080), (3e-7, 8e-7, 2e-6), (-0.4, 0.1, 0.3), (1, 2, 3)]
)
def test_labels_of_an_axis_differ_and_are_what_they_stand_at(opened: Opened, tmp_path: Path, figures: tuple) -> None:
    folder = write_run(tmp_path / "run", GROUPS)
    rows = "\n".join(f"{step},{figure!r}" for step, figure in enumerate(figures))
    (folder / "metrics.csv").write_text(f"step,mine\n{rows}\n")
    page = opened(folder)
    labels = page.locator(".panels .chart svg[role=img] > text[text-anchor=end]")
    shown = [
        (float(one.text_content().replace("−", "-").replace("k", "e3")), float(one.get_attribute("y")))
        for one in labels.all()
    ]
    assert len({value for value, _ in shown}) == len(shown) > 2
    steps = [(a[0] - b[0]) / (a[1] - b[1]) for a, b in pairwise(shown)]
    assert min(steps) == pytest.approx(max(steps), rel=0.01), "equal distances on the page are equal in numbers"


def test_the_timeline_leads_to_episodes_and_their_texts(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", GROUPS))
    assert page.locator(".episode .what").all_inner_texts() == ["✓ solve 0", "✎ update 0", "✗ solve 1"]
    page.locator(".episode").nth(2).click()
    assert "left is up" in page.locator("#episode .context").last.inner_text()
    assert page.locator("#episode .said").all_inner_texts()[:2] == ["a wall", "go left"]
    assert page.locator(".facts").inner_text().split()[-2:] == ["version", "3"]
    page.locator(".siblings .pick").nth(1).click()
    assert "sibling 1" in page.locator("#details header").inner_text()


def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Opened, tmp_path: Path) -> None:
    noted = (EntryEvent(EntryEventKind.CAME, "1", "a word " * 40),)
    plain = varied_groups(2, 4, words=12)
    groups = [with_episodes(made, lambda one: structs.replace(one, entries=noted)) for made in plain]
    long = group("long", [[True, False] * 32] * 2)
    page = opened(write_run(tmp_path / "run", [*groups, long], group_size=4))
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".row").last.click()
    assert page.locator(".siblings .dots").all_inner_texts() == ["32 of 64 solved"] * 2
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator(".row").first.click()
    assert page.locator(".carried").count()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    texts = "[...document.querySelectorAll('.chart text')].map((one) => one.getBoundingClientRect().height || 99)"
    assert page.evaluate(f"Math.min(...{texts})") > 11


def evaluated(folder: Path, times: int, **changed: Any) -> Path:
    """The run, with suites of so many times as many positions, a further control, and these changes of their records."""
    results = json.loads((folder / "evaluation.json").read_text())
    for suite in results["suites"].values():
        suite["positions"] *= times
        suite["controls"] = {name: positions * times for name, positions in suite["controls"].items()}
        suite["controls"]["warm_start_blanked"] = suite["positions"]
        suite |= changed
    (folder / "evaluation.json").write_text(json.dumps(results))
    return folder


def test_on_any_screen_the_tables_of_a_suite_of_four_tasks_are_shown_whole(opened: Opened, tmp_path: Path) -> None:
    runs = [evaluated(write_run(tmp_path / name, GROUPS), 2) for name in ("one", "two")]
    for folders in (runs[:1], runs):
        page = opened(*folders)
        tables = page.locator(".suite-table .scroll")
        for width in (390, 700, 1000, 1100, 1150, 1300):
            page.set_viewport_size({"width": width, "height": 900})
            hidden = tables.evaluate_all("all => all.map((table) => table.scrollWidth - table.clientWidth)")
            assert hidden == [0] * len(folders), width


def test_the_link_to_an_episode_opens_it_again(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", GROUPS))
    page.locator(".row").nth(3).click()
    page.locator(".episode").nth(1).click()
    address = page.locator("#details header a").first.get_attribute("href")
    page.locator(".row").first.click()
    page.evaluate("address => { location.hash = address }", address)
    page.wait_for_function("document.querySelector('#details h3').textContent === 'b'")
    assert "sibling 1" in page.locator("#details header").inner_text()
    assert "update 0" in page.locator(CHOSEN).inner_text()
    page.reload()
    assert "update 0" in page.locator(CHOSEN).inner_text()
    page.evaluate("location.hash = 'pack=unknown&sibling=0&step=4&file=train&episode=0'")
    assert page.locator("#details h3").inner_text() == "b"
    shown = read_evidence(tmp_path / "run").groups[0]  # as doctor links it
    found = PlacedEpisode(shown.group.lifecycles[0].episodes[2], shown.step, shown.group.pack.id, 0, 2)
    page.evaluate("address => { location.hash = address }", found.address)
    page.wait_for_function("document.querySelector('#details h3').textContent === 'a'")
    assert "solve 1" in page.locator(CHOSEN).inner_text()


def test_a_text_is_shown_with_its_words_whether_it_is_what_was_asked_for_and_its_reward(
    opened: Opened, tmp_path: Path
) -> None:
    made = group("a", [[True, False], [False, True]], context="left is up")
    kind, lives = EpisodeKind.WRITE, []
    for life, valid in zip(made.lifecycles, (True, False), strict=True):
        parts = {"learnability": 0.75 * valid}
        said = structs.replace(life.solves[0], turns=(turn("door <b>7</b>"),), success=valid, reward=0.75 * valid)
        proposal = structs.replace(said, kind=kind, parts=parts)
        lives.append(structs.replace(life, episodes=(proposal, *life.episodes)))
    page = opened(write_run(tmp_path / "run", [structs.replace(made, lifecycles=tuple(lives))]))
    for row, outcome in enumerate(("written as asked for", "not what was asked for")):
        page.locator(".row").nth(row).click()
        page.locator(".episode.write").click()
        shown = page.locator("#details").inner_text()
        assert "write 0" in page.locator(CHOSEN).inner_text()
        assert all(text in shown for text in (outcome, "door <b>7</b>", "Context it was written with", "learnability"))
        assert page.locator(".row .dots").nth(row).locator("i").count() == 2, "a dot for each solve episode alone"


def test_curves_that_never_left_0_are_put_away_by_name(opened: Opened, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", GROUPS)
    rows = "".join(f"{step},0,{step},0\n" for step in range(4))
    (folder / "metrics.csv").write_text("step,train/loss,mine,rollout/token_drift\n" + rows)
    page = opened(folder)
    assert page.locator("#zero").inner_text() == "Always 0 (2): rollout/token_drift, train/loss"
    assert page.locator("#training > .panels .chart").count() == 1


def test_entries_have_a_row_each_that_shows_when_they_came_were_shown_and_went_and_what_they_earned(
    opened: Opened, tmp_path: Path
) -> None:
    made = group("a", [[True, False, True]])
    events = (
        [],
        [("came", "1", "up"), ("came", "2", "<b>left</b>")],
        [("shown", "1"), ("changed", "1", "down")],
        [],
        [("shown", "1"), ("gone", "2", "over the capacity")],
    )
    episodes = tuple(
        structs.replace(one, entries=tuple(EntryEvent(EntryEventKind(kind), *more) for kind, *more in of))
        for one, of in zip(made.lifecycles[0].episodes, events, strict=True)
    )
    lives = (structs.replace(made.lifecycles[0], episodes=episodes),)
    page = opened(write_run(tmp_path / "run", [structs.replace(made, lifecycles=lives)]))
    rows = page.locator(".carried tbody tr")
    assert rows.locator("th").all_inner_texts() == ["1 down", "2 <b>left</b>"]
    assert rows.locator(".fate").all_inner_texts() == [
        "from update 0; changed by solve 1",
        "from update 0; gone after solve 2: over the capacity",
    ]
    assert [row.locator("td").nth(5).inner_text() for row in rows.all()] == ["0.5 in 2", "\u2013"]
    assert [cell.inner_text() for cell in rows.first.locator("td").all()[:5]] == ["", "+", "~", "–", ""]
    assert rows.first.locator("td").nth(2).get_attribute("title") == "before: up"
    shown = [cell.locator("i").get_attribute("title") for cell in rows.first.locator("td:has(i)").all()]
    assert shown == ["not solved", "solved"]
    assert [cell.inner_text() for cell in rows.nth(1).locator("td").all()[:5]] == ["", "+", "–", "–", "×"]
    page.locator(".episode").nth(2).click()
    assert page.locator(f"{CHOSEN} .what").inner_text() == "✗ solve 1"
    assert page.locator(".carried thead .chosen").inner_text() == "1"


def test_a_changed_entry_stands_beside_what_it_was(opened: Opened, tmp_path: Path) -> None:
    solve, update, later = GROUPS[0].lifecycles[0].episodes
    was, now = "1=?\n2=up\nit was so", "1=up\n2=up\nit was so\nnew"
    changed = structs.replace(update, context_before=was, context_after=now)
    episodes = (structs.replace(solve, context_after=was), changed, later)
    life = structs.replace(GROUPS[0].lifecycles[0], episodes=episodes)
    page = opened(write_run(tmp_path / "run", [structs.replace(GROUPS[0], lifecycles=(life,))]))
    page.locator(".episode").nth(1).click()
    context = page.locator("#episode .context")
    for kind, entries in (("del", ["1=?"]), ("ins", ["1=up", "new"]), ("span:not(.sign)", ["2=up", "it was so"])):
        assert context.locator(kind).all_inner_texts() == entries


def test_of_an_endpoint_of_which_no_log_prob_is_known_none_is_shown(opened: Opened, tmp_path: Path) -> None:
    asked = (turn("go left", (0.0, 0.0, 0.0)),)
    made = with_episodes(GROUPS[0], lambda one: structs.replace(one, turns=asked))
    page = opened(write_run(tmp_path / "run", [made], logprobs=False))
    said = page.locator("#episode").inner_text()
    assert "No log-probs: played greedily, by a script, or by a model elsewhere." in said
    assert (page.locator(".response").inner_text(), page.locator(".token").count()) == ("go left", 0)


def test_words_are_coloured_by_log_prob_and_by_advantage(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", varied_groups(2, 2, words=5)))
    backgrounds = "all => all.map(one => getComputedStyle(one).backgroundColor)"
    words = page.locator(".turns li").first.locator(".token")
    assert words.count() == 6
    assert len(set(words.evaluate_all(backgrounds))) > 3
    page.locator("input[value=advantage]").check()
    assert len(set(words.evaluate_all(backgrounds))) == 1
    assert "As the update had it" in page.locator("#episode").inner_text()


def test_a_choice_of_colours_is_offered_where_there_are_several(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", varied_groups(2, 2, words=5), logprobs=False))
    assert page.locator("input[name=colouring]").count() == 0
    assert page.locator(".scale").inner_text().startswith("Log-probs under the sampler.")
    assert page.locator(".turns .token[style]").count() > 0


def test_words_are_coloured_by_the_gap_between_policy_and_sampler(opened: Opened, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", (groups := varied_groups(2, 2, words=5)))
    write_logprobs(folder, groups, updates=2, skipped=(1,))
    page = opened(folder)
    page.locator("input[value=logprob]").focus()
    page.keyboard.press("ArrowLeft")  # from the first round to the last
    assert page.evaluate("document.activeElement.value") == "gap"
    words = page.locator(".turns li").first.locator(".token")
    backgrounds = words.evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert len(set(backgrounds[1:])) == 1
    assert backgrounds[0] not in backgrounds[1:]
    assert words.first.get_attribute("title").endswith("in the update gap 0.1, ratio 1.11")
    assert words.nth(1).get_attribute("title").endswith("in the update gap 0, ratio 1")
    legend = page.locator(".scale").inner_text()
    assert "likelier" in legend
    assert "The policy had moved by 2 updates since it sampled" in legend
    page.locator(".episode").nth(1).click()
    assert page.locator("input[name=colouring]").count() == 0, "no update trained on it"
    assert page.locator(".scale").inner_text().startswith("Log-probs under the sampler.")
    page.locator(".episode").nth(0).click()
    assert page.locator("input[value=gap]").is_checked()


def test_the_values_under_the_pointer_are_read_out(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", GROUPS))
    reward = page.locator(".panels figure").first
    reward.locator("svg").first.hover()
    first, second = reward.locator(".legend").inner_text().split("\n")
    step = int(first.removeprefix("position 0 0.25 at "))
    assert step in (2, 3)
    assert second == f"position 1 {0.25 + step / 20:g} at {step}"
    page.mouse.move(0, 0)
    assert reward.locator(".legend").inner_text().split("\n") == ["position 0 0.25", "position 1 0.5"]


def test_tokens_that_are_no_words_are_bars(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", GROUPS))
    assert page.locator(".turns .strokes .token").count() == 2
    assert "2 tokens, a stroke for each" in page.locator(".turns").inner_text()
    page.locator("input[value=gap]").check()
    assert page.locator(".turns .strokes .token").first.get_attribute("title").startswith("token 0: log-prob -0.1,")


def test_filters_and_search_narrow_the_list(opened: Opened, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", GROUPS)
    transcript.write(folder / "lifecycles" / "validation.jsonl", [saying(GROUPS[0], "a frozen duck")], step=9)
    page = opened(folder)

    def counts(said: str) -> None:
        page.locator("#count", has_text=said).wait_for()

    counts("6 of 6 lifecycles")
    page.locator("select[name=step]").select_option("9")
    counts("2 of 6 lifecycles")
    page.get_by_role("button", name="Clear").click()
    page.locator("select[name=outcome]").select_option("solved")
    page.locator("select[name=position]").select_option("1")
    counts("3 of 6 lifecycles")
    assert page.locator(f"{CHOSEN} .what").inner_text() == "✓ solve 1"
    page.get_by_role("button", name="Clear").click()
    page.locator("select[name=status]").select_option("failed")
    counts("1 of 6 lifecycles")
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("searchbox").fill("FROZEN duck")
    page.get_by_text("2 of 6 lifecycles").wait_for()
    page.get_by_role("searchbox").fill("no such words")
    page.get_by_text("No lifecycle fits the filters.").wait_for()


def test_everything_is_reached_with_the_keyboard(opened: Opened, tmp_path: Path) -> None:
    page = opened(write_run(tmp_path / "run", varied_groups(40, 2, words=3)))

    def tab_to(name: str) -> None:
        presses = iter(range(20))
        while _focused(page) != name and next(presses, None) is not None:
            page.keyboard.press("Tab")
        assert _focused(page) == name

    for name in ("words", "outcome", "reset", "lifecycle"):
        tab_to(name)
    outline = "getComputedStyle(document.activeElement.closest('.row')).outlineStyle"
    page.keyboard.press("ArrowDown")
    assert (page.evaluate(CHOSEN_ROW), page.evaluate(outline)) == (1, "solid")
    assert "sibling 1" in page.locator("#details header").inner_text()
    for _ in range(2):
        page.keyboard.press("ArrowUp")
    assert page.evaluate(CHOSEN_ROW) == 79
    place = page.evaluate("document.activeElement.closest('.row').getBoundingClientRect().bottom")
    assert place <= page.evaluate("document.getElementById('list').getBoundingClientRect().bottom"), "it is scrolled to"
    for name in ("sibling", "episode"):
        tab_to(name)
    page.keyboard.press("ArrowRight")
    assert _focused(page) == "episode"
    assert page.locator(f"{CHOSEN} .what").inner_text() == "✎ update 0"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    assert "sibling 0" in page.locator("#details header").inner_text()
    assert page.evaluate(CHOSEN_ROW) == 78, "the list shows it, too"


def test_runs_stand_side_by_side(opened: Opened, tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / name, GROUPS) for name in ("one", "two"))
    name = f"two/checkpoints/{'a' * 60}.ckpt"
    page = opened(one, evaluated(two, 1, packs=80, checkpoint=name))
    assert page.locator(".suite").count() == 1
    titles = page.locator(".suite h3, .suite h4").all_inner_texts()
    assert titles == ["held_out", "one: 50 packs of 2 from words", f"two: 80 packs of 2 from words, by {name}"]
    tables = [page.locator(".suite-table").nth(index).bounding_box() for index in (0, 1)]
    assert tables[0]["y"] == tables[1]["y"]
    assert page.locator(".panels .chart").last.locator(".line").count() == 2
    page.locator("select[name=run]").select_option("1")
    assert page.locator("#count").inner_text() == "4 of 8 lifecycles"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize(
    "text",
    [
        *(
            "<script>alert(1)</script>",
            "</script><img src=x onerror=alert(1)>",
            "&lt;b&gt; \u2028",
            f"🙂 é ␛ {ENCODABLE}",
        ),
        "what a model reads alone: \u115f\u2063\u206a\u3164\ue000\uffa0\ufff9\U000e0041\U000f0000\U0010ffff",
    ],
)
def test_hostile_text_stays_text(opened: Opened, tmp_path: Path, text: str) -> None:
    page = opened(write_run(tmp_path / "<b>run", [saying(GROUPS[0], text)]), scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    for index in range(3):
        page.locator(".episode").nth(index).click()
        assert visible(text) in page.locator("#episode").evaluate("one => one.textContent")
    everything = page.evaluate(
        "document.body.innerText + [...document.querySelectorAll('[title]')].map((e) => e.title)"
    )
    assert not RAW.search(everything)
    assert not RAW.search((tmp_path / "report.html").read_text())
    assert page.locator("#lifecycles script, #lifecycles img, #lifecycles b b, h1 b").count() == 0
    assert page.locator("h1").inner_text() == "<b>run"


def test_a_run_without_anything_to_show_says_so(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("model: [")
    page = opened(tmp_path / "run")
    assert page.locator(".note li").count() == 3
    assert page.locator(".empty").count() == 3
