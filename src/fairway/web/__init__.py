"""The live page: who has which GPU until when, why a workload waits. Others import the modules named here."""

__all__ = ["access", "server", "submit", "world"]
