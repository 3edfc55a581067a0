"""Which conversations run in this process, and who is connected to them."""
