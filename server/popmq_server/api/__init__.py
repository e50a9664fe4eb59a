"""The faces: gRPC in, commands out. The only room of the server that knows grpc and generated code."""
