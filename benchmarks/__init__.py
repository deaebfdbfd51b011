"""Measurements of speed; no test depends on them."""
