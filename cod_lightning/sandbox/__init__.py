"""Where all that a policy's text can reach is computed: one process for one text, cut off from the trainer and all others."""
