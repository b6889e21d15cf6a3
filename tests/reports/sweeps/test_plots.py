"""What a comparison's drawing shows, read back from matplotlib."""

import pytest

from cod_lightning.reports.sweeps.plots import comparison


def figure(mean, ci95=None):
    return {"mean": mean, "ci95": ci95}


def cell(loss, success, tokens=(0, 10), curve=(0.2, 0.4)):
    return {
        "label": f"loss={loss}",
        "setting": {"loss": loss},
        "success": {"by_position": success},
        "curve": {"tokens": list(tokens), "success": [figure(value) for value in curve]},
    }


def drawn(*cells):
    sweep = {"config": "levers", "suite": "held_out", "varied": ["loss"], "reference": "", "cells": list(cells)}
    return comparison(sweep).axes


def test_one_seed_is_a_line_with_a_mark_at_every_position_and_a_band_of_no_height():
    by_position, by_tokens = drawn(cell("rec", [figure(0.25), figure(0.5), figure(0.75)]))
    (line,) = by_position.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 1, 2], [0.25, 0.5, 0.75])
    assert line.get_marker() == "o"
    assert line.get_markersize() > 0
    (band,) = by_position.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert corners == {(0, 0.25), (1, 0.5), (2, 0.75)}
    assert [list(one.get_xdata()) for one in by_tokens.lines] == [[0, 10]]


def test_several_seeds_have_a_band_over_their_interval_and_one_colour_in_both_rows():
    by_position, by_tokens = drawn(
        cell("rec", [figure(0.3, (0.25, 0.5)), figure(0.6, (0.5, 0.75))]), cell("grpo", [figure(0.1), figure(0.2)])
    )
    ys = by_position.collections[0].get_paths()[0].vertices[:, 1]
    assert (ys.min(), ys.max()) == (0.25, 0.75)
    colours = [[line.get_color() for line in axes.lines] for axes in (by_position, by_tokens)]
    assert colours[0] == colours[1]
    assert len(set(colours[0])) == 2
    assert [text.get_text() for text in by_tokens.get_legend().get_texts()] == ["loss=rec", "loss=grpo"]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_position_without_a_figure_is_left_out_and_no_zero(missing):
    values = [figure(0.5), figure(0.5)]
    values[missing] = figure(None)
    by_position, _ = drawn(cell("rec", values))
    assert list(by_position.lines[0].get_xdata()) == [1 - missing]
