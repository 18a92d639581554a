"""The fabric core: switches, ports, links and one event loop; `fabric.fabric.Fabric` is the way in."""
