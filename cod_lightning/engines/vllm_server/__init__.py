"""vLLM servers as an engine: started here or elsewhere, kept in step with the trained weights, asked in exact tokens."""
