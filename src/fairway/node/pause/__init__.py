"""Processes frozen in place, and let go on: CPUs and GPUs are free meanwhile, their memory stays in the machine.

Of an attempt to run a container `pause` says how far it is to be frozen, and for which request; `paused` says how far
it is. The shim starts a program (`freezer`) wherever the two differ. The steps: GPU work is stopped (LOCKED), GPU
memory is in host memory (SAVED), no process runs (STILL), and when the machine goes down all is in files (ON_DISK).
All pods of a workload do a step before any does the next.
"""
