"""Changes of EVs that a controller hears of: queues that it polls, and watchers (`mrc-protocol.md §10`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mrc_host import ctl_requests
from mrc_host.ctl_requests import ProfileKind, QueuedEvent
from mrc_host.node.profiles import DEFAULT, REPORTED, ControlledProfiles, event_states
from mrc_host.proto.events import EvChanged, EvState
from mrc_topo.base.rpc import Done, Verbs

MAX_EVENTS: Final = 1 << 16
MAX_EVENT_QUEUES: Final = 64
EVENT_STATES: Final = frozenset({EvState.GOOD, EvState.ASSUMED_BAD, EvState.DENIED})


@dataclass
class _EventQueue:
    """Changes of EVs that have not been polled yet; `lost` counts those for which there was no room, since the last
    that fitted.
    """

    depth: int
    states: frozenset[EvState]
    profiles: frozenset[str] | None
    events: deque[QueuedEvent] = field(default_factory=deque)
    lost: int = 0


class EvEvents:
    """See the module's docstring. `profiles`: which of them tell of what."""

    def __init__(self, profiles: ControlledProfiles) -> None:
        self.profiles = profiles
        #: Are called with EV profile, event and state of each change that the profile tells of.
        self.watchers: list[Callable[[str, EvChanged, EvState], None]] = []
        self._queues: dict[int, _EventQueue] = {}

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs that concern queues of changes."""
        verbs.add(ctl_requests.CreateEventQueue, self.create)
        verbs.add(ctl_requests.PollEventQueue, self.poll)
        verbs.add(ctl_requests.DestroyEventQueue, self.destroy)

    def create(self, request: ctl_requests.CreateEventQueue, now: int) -> ctl_requests.EventQueue:
        """Create a queue of changes of EVs to these states, of queue pairs with these EV profiles (None: all)."""
        wanted = frozenset(request.states)
        if not wanted or wanted - EVENT_STATES:
            raise ValueError(f"states are some of {', '.join(sorted(each.name for each in EVENT_STATES))}")
        if not 1 <= request.depth <= MAX_EVENTS or len(self._queues) >= MAX_EVENT_QUEUES:
            raise ValueError(f"a queue has 1 to {MAX_EVENTS} entries, and there are at most {MAX_EVENT_QUEUES} queues")
        number = max(self._queues, default=0) + 1
        profiles = None if request.profiles is None else frozenset(request.profiles)
        self._queues[number] = _EventQueue(request.depth, wanted, profiles)
        return ctl_requests.EventQueue(number)

    def take(self, event: EvChanged) -> None:
        """Take an event of the endpoint."""
        state = EvState.GOOD if event.new is EvState.SKIP else event.new
        wanted = any(state in queue.states for queue in self._queues.values())
        if not wanted and not (self.watchers and state in REPORTED):
            return
        profile = next((each.ev for each in self.profiles.queue_pairs() if each.qp.number == event.qpn), DEFAULT)
        reported = event_states(self.profiles.find(ProfileKind.EV, profile).settings)
        if reported is not None and state not in reported:
            return
        if state in REPORTED:
            for watcher in self.watchers:
                watcher(profile, event, state)
        for queue in self._queues.values():
            if state not in queue.states or (queue.profiles is not None and profile not in queue.profiles):
                continue
            if len(queue.events) >= queue.depth:
                queue.lost += 1
                continue
            queue.events.append(QueuedEvent(profile, event.ev, event.plane, state, event.qpn, queue.lost))
            queue.lost = 0

    def _queue(self, number: int) -> _EventQueue:
        if number not in self._queues:
            raise ValueError(f"no queue {number} of EV events")
        return self._queues[number]

    def poll(self, request: ctl_requests.PollEventQueue, now: int) -> ctl_requests.QueuedEvents:
        """Take the oldest events of a queue, each with the number of those that were dropped before it."""
        events = self._queue(request.queue).events
        return ctl_requests.QueuedEvents([events.popleft() for _ in range(min(request.limit, len(events)))])

    def destroy(self, request: ctl_requests.DestroyEventQueue, now: int) -> Done:
        """Forget a queue."""
        self._queue(request.queue)
        del self._queues[request.queue]
        return Done()
