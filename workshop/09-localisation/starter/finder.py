"""Names whatever no probe came back from. `views[host]` lists what a host probes: `port` (its plane), `target` (its own
T0, or a T1 of that plane) and `history`, its latest probes: 1 answered, 0 lost."""

from mrclab.lab.management.clustermapper import Finding


def dead(probe):
    """Whether the two latest probes were lost."""
    return len(probe["history"]) >= 2 and not any(probe["history"][-2:])


class Finder:
    def locate(self, topology, views):
        found = {}
        for host, probes in views.items():
            for probe in probes:
                if dead(probe):
                    found.setdefault(probe["target"], []).append(host)
        return [Finding(element, "dead", tuple(hosts)) for element, hosts in found.items()]
