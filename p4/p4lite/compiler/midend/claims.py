"""Control-plane names: one object of a kind for each (P4Runtime specification §6.1.1, language specification §18.3)."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Unsupported


class Claims:
    """The owner of each name. A second owner is refused: switch and control plane find objects by their names."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[object, ast.Pos]] = {}
        self._instances: dict[str, list[ast.Pos]] = {}

    def instance(self, path: str, pos: ast.Pos) -> None:
        """Note an instance of a parser or control with the control-plane name `path`."""
        self._instances.setdefault(path, []).append(pos)

    def claim(self, kind: str, name: str, owner: object, pos: ast.Pos) -> None:
        """Record the object of this kind and name, declared at `pos`. Raises `Unsupported` if another one has it."""
        known, place = self._owners.setdefault((kind, name), (owner, pos))
        if known == owner:
            return
        path = name
        while path:
            path = path.rpartition(".")[0]
            made = self._instances.get(path, [])
            if len(made) > 1 and place == pos:
                raise Unsupported(
                    made[1],
                    f"a second instance with the control-plane name '{path}' (the first is at {made[0]}): its {kind} "
                    f"'{name}' would be there twice; declare instances with names of their own, as in C() first; "
                    "C() second;",
                )
        raise Unsupported(pos, f"a second {kind} with the control-plane name '{name}'; the first is at {place}")

    def taken(self, *kinds: str) -> set[str]:
        """Return the names that objects of these kinds have."""
        return {name for kind, name in self._owners if kind in kinds}
