"""Operation graphs of training: read (Chakra, GOAL), generated from models, lowered to messages, and placed on hosts."""
