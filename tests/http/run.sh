#!/usr/bin/env bash
# Runs the official Python client against the binary and a real model. Run it through scripts/env.sh.
# usage: run.sh [PYTHON [BINARY [MODEL]]]
# Without PYTHON, one with the packages of requirements.txt is made; without MODEL, the default model is served.
source "$(dirname "$0")/../../scripts/common.sh"

tests=$root/tests/http
python=${1:-$("$root/scripts/venv.sh" "$tests/requirements.txt")}
export HTTP_TEST_BINARY=${2:-$root/target/release/annulus}
export HTTP_TEST_MODEL=${3:-}

# A failing test must end the run; -b keeps what passing ones print to themselves.
exec "$python" -B -m unittest discover --verbose -b --start-directory "$tests" --pattern 'test_*.py'
