"""Games that the tests of a file compile are kept for that file."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _kept_games(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COD_LIGHTNING_CACHE", str(tmp_path_factory.mktemp("games")))
        yield
