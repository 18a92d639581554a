"""Roles of a lab's processes: the name in records and logs, and what is said of it."""

from __future__ import annotations

import pytest

from mrclab.lab.processes.process import Role, RoleKind


@pytest.mark.parametrize(
    ("text", "role", "sentence"),
    [
        ("lab", Role(RoleKind.LAB), "the lab"),
        ("labd", Role(RoleKind.DAEMON), "the lab's daemon"),
        ("m1.fabric", Role(RoleKind.FABRIC, machine="m1"), "the fabric's process on machine m1"),
        ("h3.shell", Role(RoleKind.SHELL, "h3"), "the shell that holds the namespace of h3"),
        ("machine.m1", Role(RoleKind.MACHINE, "m1"), "machine m1"),
        ("p0-t0.1", Role(RoleKind.NODE, "p0-t0.1"), "p0-t0.1"),
    ],
)
def test_roles_by_name(text: str, role: Role, sentence: str) -> None:
    assert Role.parse(text) == role
    assert role.sentence() == sentence
