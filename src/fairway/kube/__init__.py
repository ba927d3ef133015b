"""What talks to a Kubernetes API server, and in which order it writes. Others import the modules named here."""

__all__ = ["agenda", "certificate", "client", "config", "events", "http", "informer", "kinds", "lease",
           "manifest", "plain", "runs", "transport", "turnstile"]  # fmt: skip
