"""A flat table of a rollout's episodes to an advantage for each of them: returns, baselines, attempts, scale, reweighting."""
