#!/usr/bin/env bash
# Chromium, in which the tests try the pages; without it they are left out, and say so.
set -euo pipefail

if command -v chromium > /dev/null || command -v google-chrome > /dev/null; then
    exit 0
fi
become_root=""
[ "$(id -u)" = 0 ] || become_root="sudo --non-interactive"
if command -v apt-get > /dev/null && $become_root true 2> /dev/null; then
    echo "Installing Chromium, for the tests of pages"
    $become_root apt-get update -qq && $become_root apt-get install -qq -y chromium > /dev/null && exit 0
fi
echo "There is no Chromium: the tests of pages in a browser will be left out" >&2
