"""One client for chat endpoints: the engine's, a judge's, a teacher's. Every answer is bounded in time, bytes and tokens."""
