# Sourced by quickstart and runtests: which Debian 12 packages each purpose needs.

build_packages=(
  g++ meson ninja-build pkgconf python3
  libmpfr-dev libgmp-dev libmpfi-dev libboost-dev libcgal-dev libtbb-dev
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libssl-dev zlib1g-dev
)
test_packages=(libgtest-dev libgmock-dev)
lint_packages=(clang-format clang-tidy-16)
proof_packages=(
  coq libcoq-flocq libcoq-interval libcoq-gappa gappa ocaml-nox ocaml-findlib libzarith-ocaml-dev
)

# install_missing PACKAGE...: installs those that are not installed; nothing if all are.
install_missing() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    echo "These packages are missing, and only root can install them. Run:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } \
      >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "apt-get could not install: ${missing[*]}" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# configure FOLDER OPTION...: sets up a Meson build folder once; Meson reconfigures it by itself
# when a meson.build changes. A folder whose set-up was interrupted is begun anew.
configure() {
  local folder=$1
  shift
  [[ -f $folder/build.ninja ]] && return 0
  rm -rf "$folder"
  local compiler=${CXX:-g++}
  if [[ -z ${CXX:-} ]] && command -v ccache >/dev/null; then compiler="ccache g++"; fi
  CXX=$compiler meson setup "$folder" "$@"
}
