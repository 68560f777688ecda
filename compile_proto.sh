#!/usr/bin/env bash
# Generates the stubs of protos/*.proto into OUT (by default src), where they are part of the package.
# usage: compile_proto.sh [OUT]; needs grpcio-tools; PYTHON says which python has it.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-src}
# under their place in the package, so that generated modules import each other by their whole names
files=()
for file in protos/*.proto; do files+=("millstream/$file"); done
mkdir -p "$out"
"${PYTHON:-python3}" -m grpc_tools.protoc -Imillstream/protos=protos \
  --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" "${files[@]}"
