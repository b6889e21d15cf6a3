"""Checkpoints of a run: written durably, sealed, found, checked and read."""
