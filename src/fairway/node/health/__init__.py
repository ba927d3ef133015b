"""How containers are: probes, lifecycle hooks and termination messages."""
