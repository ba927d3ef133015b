"""The loop around `decide`, and what applies a plan. Others import the modules named here."""

__all__ = ["journal", "mail", "run", "webhook"]
