"""The RoCEv2 RC baseline: endpoint, queue pair, codec."""
