"""Fairway decides which AI workload runs when, and on which accelerators."""
