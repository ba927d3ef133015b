"""`pods/portforward`."""
