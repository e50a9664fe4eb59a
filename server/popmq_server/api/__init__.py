"""The gRPC server: ports, authentication, transports, and the two protocols below it."""
