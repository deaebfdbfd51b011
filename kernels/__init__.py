"""Kernels that the audit compares with: each package holds its sources, its contract and its build."""
