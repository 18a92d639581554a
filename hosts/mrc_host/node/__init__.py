"""One host on any clock: a protocol endpoint, the workloads on it, and the verbs that command both."""
