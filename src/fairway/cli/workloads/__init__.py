"""Small real workloads: what the demo and the examples run as jobs."""
