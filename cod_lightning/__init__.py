"""Train and deploy LLMs as long-lifecycle agents that write down what they learn ("Connect the Dots")."""

__version__ = "0.2.0"
