"""The side of the clients: the gRPC server, both protocols, access keys. It knows the contract, not the engine."""
