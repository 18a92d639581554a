"""The kinds of checks: each a function of what runs recorded, registered by name, with typed parameters"""
