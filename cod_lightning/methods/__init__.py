"""What papers add to the parts of a training, one file a method: its formula, its source, what differs from it.

A method is a class at a seam of the core (a loss, a replay, a source, a program, a reward, a scorer, a context mechanism), chosen
by its class path. Nothing in the core imports one, and no method another, but for acts, which are edits of the notebook.
A `NAME_wording.py` holds the prompts of the method beside it, a `NAME_command.py` its command.
"""
