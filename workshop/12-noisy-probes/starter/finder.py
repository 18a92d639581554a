"""Names every element of whose probes more than a tenth were lost. `views[host]` lists what a host probes: `port` (its
plane), `target` (its own T0, or a T1 of that plane) and `history`, its latest probes: 1 answered, 0 lost."""

from mrclab.lab.management.clustermapper import Finding


def crossed(topology, host, probe):
    """Return the elements that a probe crosses, there and back."""
    plane, target = probe["port"], probe["target"]
    t0 = topology.host(host).ports[plane].t0
    found = [f"{host}:{plane}", t0]
    return found if target == t0 else [*found, f"{t0}--{target}", target]


class Finder:
    def locate(self, topology, views):
        sent, lost = {}, {}
        for host, view in views.items():
            for probe in view:
                for element in crossed(topology, host, probe):
                    sent[element] = sent.get(element, 0) + len(probe["history"])
                    lost[element] = lost.get(element, 0) + probe["history"].count(0)
        return [Finding(each, "lossy", ()) for each in sent if lost[each] > 0.1 * sent[each]]
