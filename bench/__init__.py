"""The performance suite: ``python -m bench`` measures the budgets on real parts. See docs/performance.md."""
