"""Fairway decides which AI workload runs when, and on which accelerators."""

NAMESPACE = "fairway-system"
"""Where the controller lives, unless a setting names another."""
LEASE, WORKED, TOLD = "fairway-controller", "fairway.dev/worked-until", "fairway.dev/told-until"
"""The lease of who decides, and the annotations there: until when it did; before when all that happened is in the log,
while its holder may still find what happened before it led."""
