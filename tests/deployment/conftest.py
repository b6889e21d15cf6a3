"""Stores here do not wait for the disk: a test ends a process at most, and not the machine."""

import pytest

from cod_lightning.deployment.rows import FolderRows

OPENED = FolderRows.__init__


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    def opened(self, path):
        OPENED(self, path)
        self.db.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(FolderRows, "__init__", opened)
