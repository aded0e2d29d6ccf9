#!/usr/bin/env bash
# Installs what the tests need beyond building: Node, and Chromium for the pages.
source "$(dirname "$0")/common.sh"

need_command node nodejs
need_command npm npm
if [ "$(uname -s)" = Linux ]; then
  need_command chromium chromium
elif [ ! -d "/Applications/Google Chrome.app" ]; then
  fail "looking for a browser" "Google Chrome is missing" "install it; the browser tests drive it"
fi
