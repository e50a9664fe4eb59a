"""The gRPC server: ports, authentication, transports, and the two protocols served on them."""
