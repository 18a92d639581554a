"""Names the elements that explain the lost probes, the most suspicious first: what it explains is taken away before the
next one is named. `views[host]` lists what a host probes: `port` (its plane), `target` (its own T0, or a T1 of that
plane) and `history`, its latest probes: 1 answered, 0 lost."""

from mrclab.lab.management.clustermapper import Finding

#: Noise takes less than a tenth of the probes; an element that loses four of ten packets takes more than half of them.
BROKEN = 0.3


def crossed(topology, host, probe):
    """Return the elements that a probe crosses, there and back."""
    plane, target = probe["port"], probe["target"]
    t0 = topology.host(host).ports[plane].t0
    found = [f"{host}:{plane}", t0]
    return found if target == t0 else [*found, f"{t0}--{target}", target]


class Finder:
    def locate(self, topology, views):
        probes = [
            (host, set(crossed(topology, host, probe)), len(probe["history"]), probe["history"].count(0))
            for host, view in views.items()
            for probe in view
        ]
        found = []
        while True:
            sent, lost = {}, {}
            for _, elements, number, missing in probes:
                for element in elements:
                    sent[element] = sent.get(element, 0) + number
                    lost[element] = lost.get(element, 0) + missing
            share = {element: lost[element] / max(sent[element], 1) for element in sent}
            most = max(share.values(), default=0)
            if most < BROKEN:
                return found
            # Where a switch is dead, its links lose as many: the one that explains most probes is named.
            worst = max((each for each in share if share[each] >= 0.9 * most), key=lambda each: (sent[each], each))
            hosts = sorted({host for host, elements, _, missing in probes if worst in elements and missing})
            found.append(Finding(worst, "lossy", tuple(hosts)))
            probes = [each for each in probes if worst not in each[1]]
