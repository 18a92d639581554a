"""The sans-IO MRC endpoint: no sockets, clocks, threads or global randomness."""
