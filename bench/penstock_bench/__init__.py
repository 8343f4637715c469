"""Benchmarks measure Penstock beside its rivals, and measure the figures of papers anew.

They use what Penstock has for everybody, and `penstock.testing`.
"""
