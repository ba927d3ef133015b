"""Fairway decides which AI workload runs when, and on which accelerators."""

NAMESPACE = "fairway-system"
"""Where the controller lives, unless a setting names another."""
LEASE, WORKED = "fairway-controller", "fairway.dev/worked-until"
"""The lease of who decides, and the annotation there that says until when it did."""
