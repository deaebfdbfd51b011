"""The cell's process: run an implementation on a case, twice, keep its tensors, say what ran."""
