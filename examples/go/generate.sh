#!/bin/sh
# Makes ./popmqv1 from the contract. Nothing generated is committed: the stubs can never be older than the .proto.
# The two plugins come in the versions of go.mod; protoc itself from the PATH, or from grpcio-tools of ${PYTHON}.
set -eu
cd "$(dirname "$0")"

if command -v protoc >/dev/null; then
    protoc=protoc
else
    protoc="${PYTHON:-python3} -m grpc_tools.protoc"
fi
GOBIN="$PWD/.bin" go install tool
rm -rf popmqv1
# The import path is ours to choose: the stubs live in this module, not in a published one.
target="Mpopmq/v1/popmq.proto=popmq.dev/examples/go/popmqv1"
PATH="$PWD/.bin:$PATH" $protoc --proto_path=../../proto \
    --go_out=. --go_opt=module=popmq.dev/examples/go --go_opt="$target" \
    --go-grpc_out=. --go-grpc_opt=module=popmq.dev/examples/go --go-grpc_opt="$target" \
    popmq/v1/popmq.proto
