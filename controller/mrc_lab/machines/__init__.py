"""One lab on several machines: a keeper here, a part on each, the stream between them: docs/machines.md."""
