"""Dumps of tensors, their digests and their bits: numpy only, no torch."""
