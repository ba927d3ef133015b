"""Fairway decides which AI workload runs when, and on which accelerators."""

NAMESPACE = "fairway-system"
"""Where the controller lives, unless a setting names another."""
LEASE, WORKED, TOLD = "fairway-controller", "fairway.dev/worked-until", "fairway.dev/told-until"
"""The lease that the deciding controller holds, and two annotations on it. WORKED: until when its holder has worked.
TOLD: all that happened before is in the log; it is there while the holder may still find what it did not see."""
