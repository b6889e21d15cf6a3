"""Checkpoints in GGUF, the format of llama.cpp: read once, then plain folders in Hugging Face's form (`cache.py`)."""
