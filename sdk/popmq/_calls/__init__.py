"""The calls of the contract, as pure functions: each builds a request and reads its answer; both clients run them."""
