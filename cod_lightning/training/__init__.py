"""From packs to optimizer updates: rollouts, the stream of updates, and how ranks share both; no Lightning."""
