"""One lab on several machines: a coordinator here, a part on each, the stream between them: docs/machines.md."""
