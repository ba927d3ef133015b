"""Containers of images, by an engine that this machine has."""
