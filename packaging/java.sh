#!/usr/bin/env bash
# Prints the JAVA_HOME of a Java 17 or 21 (what Spark 4 runs on): the machine's own, else Debian's, unpacked without root.
#
#   java.sh [CACHE]      CACHE: where Debian's is unpacked (default: .cache of the checkout)
#
# The machine's own: $JAVA_HOME, then `java` on PATH, then $JVM_FOLDER (/usr/lib/jvm).
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/apt.sh"
CACHE=$(realpath -m "${1:-$HERE/../.cache}")
UNPACKED=$CACHE/java
VERSIONS="17 21"

# suits HOME: whether HOME holds a Java of a version that Spark 4 runs on.
suits() {
  local version
  version=$("$1/bin/java" -version 2>&1 | sed -nE '1s/.* version "([0-9]+).*/\1/p') || return 1
  [[ " $VERSIONS " == *" $version "* ]]
}

on_path() { have java && dirname "$(dirname "$(readlink -f "$(command -v java)")")"; }

find_java() {
  local home
  for home in "${JAVA_HOME:-}" "$(on_path || true)" "${JVM_FOLDER:-/usr/lib/jvm}"/* "$UNPACKED"/usr/lib/jvm/*; do
    if [ -n "$home" ] && [ -x "$home/bin/java" ] && suits "$home"; then echo "$home" && return; fi
  done
  return 1
}

choose_package() {
  local v
  for v in $VERSIONS; do
    if candidate "openjdk-$v-jre-headless"; then echo "openjdk-$v-jre-headless" && return; fi
  done
  return 1
}

# Java's conf and security files are links into /etc: point them to the /etc that was unpacked beside them.
repoint_links() {
  local link target
  find "$1" -type l -lname '/etc/*' | while read -r link; do
    target=$(readlink "$link")
    if [ -e "$1$target" ]; then ln -sfnr "$1$target" "$link"; fi
  done
}

missing_libraries() { find "$1" -type f \( -name '*.so' -o -name java \) -exec ldd {} + 2> /dev/null | awk '/not found/ {print $1}' | sort -u; }

# Libraries that Java wants and the machine lacks are put beside Java's own, where its RPATH looks.
add_libraries() { # ROOT PACKAGE
  local home names
  home=$(echo "$1"/usr/lib/jvm/java-*-openjdk-*)
  [ -n "$(missing_libraries "$home")" ] || return 0
  names=$(apt-get -qq install --print-uris "$2" | awk '{split($2, a, "_"); if (a[1] ~ /^z?lib/ && a[1] != "libc6") print a[1]}')
  unpack "$1/libraries" $names
  find "$1/libraries" -name '*.so.*' -exec cp -an -t "$home/lib" {} +
  rm -rf "$1/libraries"
}

unpack_java() {
  local work package
  mkdir -p "$CACHE" && work=$(mktemp -d "$CACHE/java-build.XXXXXX")
  trap "rm -rf '$work'" EXIT
  private_apt "$work/apt" "install Java 17 or 21 and set JAVA_HOME"
  package=$(choose_package) || die 4 "no Java 17 or 21 here, and apt offers none: install one and set JAVA_HOME"
  say "no Java 17 or 21 on this machine: unpacking $package under $UNPACKED"
  unpack "$work/root" "$package"
  add_libraries "$work/root" "$package"
  rm -rf "$UNPACKED"
  mv "$work/root" "$UNPACKED"
  repoint_links "$UNPACKED"
}

if ! find_java; then
  unpack_java
  find_java || die 4 "the unpacked Java does not run: install Java 17 or 21 and set JAVA_HOME"
fi
