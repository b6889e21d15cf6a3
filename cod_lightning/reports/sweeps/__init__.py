"""The runs of a sweep, read and compared: intervals over seeds and packs, paired differences, a table, a page, curves."""
