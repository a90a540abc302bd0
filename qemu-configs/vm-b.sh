#!/bin/sh
# VM b: 10.77.0.2.
. "$(dirname "$0")/common.sh"
start_vm b 10.77.0.2 52:54:00:77:00:02
