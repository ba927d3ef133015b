"""A Kubernetes API server for one machine, and its controllers. Others import the modules named here."""

__all__ = ["datadir", "errors", "keys", "selector", "team", "up"]
