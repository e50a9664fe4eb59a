"""KEDA's external scaler: how much work a group has, asked by KEDA over gRPC, and pushed when a message arrives."""
