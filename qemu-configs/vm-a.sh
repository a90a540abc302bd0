#!/bin/sh
# VM a: 10.77.0.1.
. "$(dirname "$0")/common.sh"
start_vm a 10.77.0.1 52:54:00:77:00:01
