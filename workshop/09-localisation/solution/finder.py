"""Names the element that explains the lost probes: first up to the T0s, then beyond them. `views[host]` lists what a
host probes: `port` (its plane), `target` (its own T0, or a T1 of that plane) and `history`, its latest probes: 1
answered, 0 lost."""

from mrclab.lab.management.clustermapper import Finding


def dead(probe):
    """Whether the two latest probes were lost."""
    return len(probe["history"]) >= 2 and not any(probe["history"][-2:])


class Finder:
    def locate(self, topology, views):
        lost = {(host, probe["target"]) for host, probes in views.items() for probe in probes if dead(probe)}
        found = []
        for plane in range(topology.lab.planes):
            reaching = {}
            for t0 in range(topology.lab.t0_per_plane):
                name = f"p{plane}-t0.{t0}"
                hosts = [host.name for host in topology.hosts_of(t0) if host.name in views]
                silent = [host for host in hosts if (host, name) in lost]
                if len(silent) == len(hosts) > 1:
                    found.append(Finding(name, "dead", tuple(silent)))
                else:
                    found += [Finding(f"{host}:{plane}", "dead", (host,)) for host in silent]
                reaching[t0] = [host for host in hosts if host not in silent]
            for t1 in range(topology.lab.t1_per_plane):
                name = f"p{plane}-t1.{t1}"
                seen = {t0: hosts for t0, hosts in reaching.items() if hosts}
                cut = {t0: hosts for t0, hosts in seen.items() if all((host, name) in lost for host in hosts)}
                if len(cut) == len(seen) > 1:
                    found.append(Finding(name, "dead", tuple(host for hosts in cut.values() for host in hosts)))
                else:
                    found += [Finding(f"p{plane}-t0.{t0}--{name}", "dead", tuple(hosts)) for t0, hosts in cut.items()]
        return found
