"""What closes pods to each other on a machine that Unix users share: their users, their limits, their devices."""
