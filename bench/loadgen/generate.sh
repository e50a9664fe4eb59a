#!/bin/sh
# Makes ./stubs from the contracts of both faces. They are not committed, so they cannot be older than the .proto.
# protoc-gen-go has the version of go.mod; protoc comes from the PATH, or from grpcio-tools of ${PYTHON}.
set -eu
cd "$(dirname "$0")"

if command -v protoc >/dev/null; then
    protoc=protoc
else
    protoc="${PYTHON:-python3} -m grpc_tools.protoc"
fi
GOBIN="$PWD/.bin" go install tool
rm -rf stubs
module=popmq.dev/bench/loadgen
v2=apache/rocketmq/v2
PATH="$PWD/.bin:$PATH" $protoc --proto_path=../../proto --go_out=. --go_opt=module=$module \
    --go_opt=Mpopmq/v1/popmq.proto=$module/stubs/popmqv1 \
    --go_opt=M$v2/definition.proto=$module/stubs/rocketmqv2 --go_opt=M$v2/service.proto=$module/stubs/rocketmqv2 \
    popmq/v1/popmq.proto $v2/definition.proto $v2/service.proto
