"""Follows the changes of a ledger of failures, for those who look at it now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrclab.lab.faults.action import Action
from mrclab.lab.faults.ledger import FaultLedger, LedgerChange


@dataclass(frozen=True)
class FollowedChange:
    """A change of a ledger, the failure that came or went by it, and the failures that were in force after it."""

    change: LedgerChange
    failure: Action
    causes: Sequence[Action]


class ChangeFollower:
    """Returns each change of a ledger once, also a failure that came and went between two calls of `take`.

    Args:
        ledger: the ledger. The changes that it has already are not returned.
        known: the failures that the caller knows of; by default those in force. `take` returns the others, too.
    """

    def __init__(self, ledger: FaultLedger, known: Sequence[Action] | None = None) -> None:
        self._ledger = ledger
        self._known = _by_failure(ledger.causes if known is None else known)
        self._number = ledger.latest

    def take(self) -> list[FollowedChange]:
        """Return the changes since the last call, oldest first, from what the ledger last read.

        A failure that is in force, or gone, without a change in the ledger is returned with the present time and number
        0: its change is under way, could not be undone, or is no longer kept. When the change of one that was under way
        is done, it is not returned again.
        """
        changes = [each for each in self._ledger.changes if each.number > self._number]
        self._number = self._ledger.latest
        found = list(filter(None, map(self._apply, changes)))
        causes = _by_failure(self._ledger.causes)
        gone = [Action("restore", *key) for key in self._known if key not in causes]
        come = [action for key, action in causes.items() if key not in self._known]
        for action in (*gone, *come):
            if followed := self._apply(LedgerChange(action, *self._ledger.changed_ns(action))):
                found.append(followed)
        return found

    def _apply(self, change: LedgerChange) -> FollowedChange | None:
        """Apply a change to the known failures; return None if they had it already."""
        action, known = change.action, self._known
        key = (action.target, action.kind)
        if (action.verb == "fail") == (key in known):
            return None
        if action.verb == "fail":
            failure = known[key] = action
        else:
            failure = known.pop(key)
        return FollowedChange(change, failure, tuple(known.values()))


def _by_failure(causes: Sequence[Action]) -> dict[tuple[str, str], Action]:
    return {(each.target, each.kind): each for each in causes}
