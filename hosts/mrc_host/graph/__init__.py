"""Operation graphs of training: read (Chakra, GOAL) or generated, lowered to messages, and placed on hosts."""
