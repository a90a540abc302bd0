#!/bin/sh
# Starts the backend for the two VMs. Start this first.
. "$(dirname "$0")/common.sh"
BACKEND=${BACKEND:-$here/../target/release/vrdma-backend}
cd "$RUN" && exec "$BACKEND" --config "$here/backend.toml" "$@"
