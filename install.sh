#!/bin/sh
# Installs capplan into .venv beside this file, with the versions of constraints.txt.
#
#   sh install.sh         to use it: .venv/bin/capplan
#   sh install.sh test    to change it: the checkout itself, with what tests and checks need
#
# Does nothing when nothing changed since the last time. PYTHON names another interpreter (3.11 or newer). With uv on the
# path it takes seconds instead of minutes.
set -eu
CDPATH= cd -P -- "$(dirname -- "$0")" # -P: environments remember the physical path

log=$(mktemp)
trap 'rm -f "$log" "$log.venv"' EXIT

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# Runs a command without a word; shows all that it said when it fails.
quietly() {
    "$@" >"$log" 2>&1 || {
        status=$?
        cat "$log" >&2
        return "$status"
    }
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
        [ -z "${PYTHON:-}" ] || break # whoever names one wants no other
    done
    found=$("${PYTHON:-python3}" --version 2>&1 || true)
    fail "Python 3.11 or newer is needed, found: $found; PYTHON=/path/to/python3.11 sh install.sh names another one"
}

has_environment() {
    # A moved environment still runs, but its commands point to where it was.
    grep -qF "$PWD/.venv" .venv/bin/activate 2>/dev/null && .venv/bin/python -m pip --version >/dev/null 2>&1
}

make_environment() {
    "$1" -m venv --clear .venv >"$log" 2>&1 && has_environment
}

# Debian and Ubuntu ship Python without ensurepip, which fills a new environment.
install_venv_package() {
    command -v apt-get >/dev/null || return 1
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || return 1
        as_root=sudo
    fi
    versioned=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "Installing $versioned with apt-get: $1 lacks what fills a new environment."
    $as_root apt-get update >"$log" 2>&1 || true # an old list may do, too
    for package in "$versioned" python3-venv; do
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=300 -y "$package" >"$log" 2>&1 && return
    done
    return 1
}

# What the installation depends on: another sum means another installation.
fingerprint() {
    echo "$mode"
    cksum pyproject.toml constraints.txt install.sh planner/__init__.py
    .venv/bin/python --version
    if [ "$mode" = use ]; then # a copy; the checkout itself needs no new copy after a change
        find planner studies constraints objectives simulator -type f ! -path '*/__pycache__/*' -exec cksum {} + | sort
    fi
}

mode=use
target=.
if [ $# -gt 0 ]; then
    [ $# -eq 1 ] && [ "$1" = test ] || fail "unknown argument: $*; 'test' is the only one"
    mode=test
    target='.[test]'
fi

if ! has_environment; then
    python=$(find_python)
    if ! make_environment "$python"; then
        cp "$log" "$log.venv"
        install_venv_package "$python" && make_environment "$python" || {
            cat "$log.venv" "$log" >&2
            fail "$python cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"
        }
    fi
fi

stamp=.venv/capplan-install.txt
if [ -f "$stamp" ] && [ "$(fingerprint)" = "$(cat "$stamp")" ]; then
    exit 0
fi

set -- -c constraints.txt
if [ "$mode" = test ]; then
    set -- "$@" -e
fi

# uv would keep what it built of a folder until pyproject.toml changes.
install_with_uv() {
    command -v uv >/dev/null && uv pip install --quiet --python .venv/bin/python --reinstall-package capplan "$@" "$target" >"$log" 2>&1
}

# Also where uv is, but finds no packages: it does not read the configuration of pip.
install_with_pip() {
    quietly .venv/bin/python -m pip install --disable-pip-version-check --no-input "$@" "$target"
}

echo "Installing capplan into .venv; the first time takes a few minutes."
rm -f "$stamp"
install_with_uv "$@" || install_with_pip "$@" || fail "pip could not install capplan; its words are above"
fingerprint >"$stamp"
