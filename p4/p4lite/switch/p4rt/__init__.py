"""The P4Runtime server of the embedded switch (P4Runtime 1.4, with simple_switch_grpc's conventions).

One gRPC server carries many devices. `service` answers the calls, `device` holds what one device_id has,
and one module per kind of entity (`tables`, `profiles`, `externs`, `replication`) turns messages into control
operations of the loaded program.
"""
