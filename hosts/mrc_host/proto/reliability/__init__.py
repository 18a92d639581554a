"""That every byte arrives once: queue pairs with their two halves, what is in flight, loss and repair."""
