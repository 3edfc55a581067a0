"""Events: what a conversation's log consists of, and the stream that numbers, masks and stores them."""
