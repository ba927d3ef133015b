"""Services of one machine: their addresses, who is behind them, and the way there."""
