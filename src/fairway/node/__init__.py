"""One machine as a node of a cluster: what a kubelet does, with processes for containers. It talks to an API server."""
