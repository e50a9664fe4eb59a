"""What clients speak: the gRPC server, both protocols, access keys. It knows the contract, not the engine."""
