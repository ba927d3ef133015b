"""One machine as a node of a cluster: what a kubelet does, with processes for containers. It talks to an API server.

Others import the modules named here, each by itself: a command needs few of them, and waits for all that it loads."""

__all__ = ["archive", "attended", "claim", "container", "containers", "downtime", "execute", "hollow", "idle",
           "isolation", "lock", "logs", "machine", "measure", "packed", "pause", "podstatus", "pressure", "processes",
           "runner"]  # fmt: skip
