"""Our configs of the paper's runs are as published, but for what the page of differences says."""

import pytest

from cod_lightning.datamodules import RolloutDataModule
from tests.as_published import PAGE, TABLE, default, page, resolved, rows

ROWS = [row for section in TABLE["sections"] for row in rows(section)]
KEYED = [row for row in ROWS if row.key]


def name(row):
    return f"{row.config.rpartition('/')[2]} {row.key}"


@pytest.mark.parametrize("row", [row for row in KEYED if "why" not in row.row], ids=name)
def test_a_setting_is_the_published_one(row):
    assert row.found == row.row["value"], row.row["theirs"]


@pytest.mark.parametrize("row", [row for row in KEYED if "why" in row.row], ids=name)
def test_a_setting_that_is_said_to_differ_does_and_is_what_is_said(row):
    assert row.found == row.row["ours"]
    assert row.found != row.row["value"]


def test_what_has_no_key_of_ours_says_what_differs():
    assert all(row.row["why"] and row.row["theirs"] for row in ROWS if not row.key)
    assert all("ours" in row.row for row in KEYED if "why" in row.row)


def test_the_page_is_made_of_what_the_configs_resolve_to():
    assert PAGE.read_text() == page(), "PYTHONPATH=. python tests/as_published.py"


def test_a_key_that_no_config_sets_has_the_default_of_its_class():
    world = {"class_path": "cod_lightning.envs.alchemy.Alchemy", "init_args": {"base_max": 6}}
    assert resolved({"data": {"env": world}}, "data.env.base_max") == 6
    assert resolved({"data": {"env": world}}, "data.env.noise_chain_depth") == 2
    assert resolved({"data": {}}, "data.group_size") == default(RolloutDataModule, "group_size")
