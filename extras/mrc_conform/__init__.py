"""The conformance kit: small scripted cases that test an MRC endpoint by the packets it sends (`mrclab conform`).

It reads and writes packets by `wire.yaml` alone and shares no code with the endpoint, except in
`devices`, where our own endpoint is one of the devices under test.
"""
