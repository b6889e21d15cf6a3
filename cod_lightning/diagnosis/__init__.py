"""Why a run does not learn: causes, each a small class with its threshold, looked for in what the run recorded."""
