#!/usr/bin/env bash
# Prints where the default model lies.
source "$(dirname "$0")/common.sh"
echo "$(cache_folder)/models/$DEFAULT_MODEL"
