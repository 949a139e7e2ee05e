# Sourced by the scripts beside it: Debian packages without root. Sources and keys are the machine's own.

say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$2" >&2; exit "$1"; }

have() { command -v "$1" > /dev/null; }

# private_apt FOLDER: apt with lists and caches of its own under FOLDER. APT_STATUS overrides what counts as installed.
# Sources that do not answer are not fatal here: what is wanted may come from another one.
private_apt() {
  { have apt-get && have dpkg-deb; } || die 4 "this machine has no apt-get and dpkg-deb (it is not Debian's kind): $2"
  mkdir -p "$1"/{lists/partial,cache/archives/partial}
  cat > "$1/apt.conf" << CONF
Dir::State "$1"; Dir::State::lists "$1/lists"; Dir::State::status "${APT_STATUS:-/var/lib/dpkg/status}"; Dir::Cache "$1/cache";
APT::Sandbox::User ""; APT::Install-Recommends "false"; Acquire::Languages "none"; Acquire::Retries "3";
CONF
  export APT_CONFIG=$1/apt.conf
  apt-get -qq update > "$1/update.log" 2>&1 || true
}

# candidate PACKAGE: whether the configured sources offer it.
candidate() { apt-cache policy "$1" 2> /dev/null | grep '^ *Candidate: [^(]' > /dev/null; }

# unpack FOLDER PACKAGE…: download the packages and lay their files out under FOLDER.
unpack() {
  local folder=$1 debs
  shift
  debs=$(mktemp -d)
  (cd "$debs" && apt-get -qq download "$@") || die 4 "apt cannot download: $* $(tail -n 1 "${APT_CONFIG%/*}/update.log")"
  for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$folder"; done
  rm -rf "$debs"
}
