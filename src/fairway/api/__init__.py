"""Kubernetes objects as engine values and back; admission; all English. Others import the modules named here."""

__all__ = ["accounts", "admission", "alone", "cancelled", "conditions", "crds", "decode", "ends", "figures", "forms",
           "indexes", "ledger", "names", "nodes", "objects", "owners", "pods", "priorities", "quantities",
           "queues", "review", "revision", "scalars", "team", "types", "usage", "volumes",
           "workloads"]  # fmt: skip
