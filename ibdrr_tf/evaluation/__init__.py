"""How well a run did: accuracies, bytes, tables and figures."""
