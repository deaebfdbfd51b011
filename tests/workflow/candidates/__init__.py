"""Callables for audits in tests: each does one thing right or wrong on purpose."""
